// Copy at least once with kafkajs: offsets are committed after a batch. A kill in between doubles its records.
const { Kafka, logLevel } = require("kafkajs");
const { KAFKA_BOOTSTRAP_SERVERS, SOURCE_TOPIC, SINK_TOPIC, GROUP } = process.env;

const kafka = new Kafka({ brokers: KAFKA_BOOTSTRAP_SERVERS.split(","), logLevel: logLevel.ERROR });
const consumer = kafka.consumer({ groupId: GROUP, sessionTimeout: 6000 });
const producer = kafka.producer({ idempotent: true });

async function main() {
  await producer.connect();
  await consumer.connect();
  await consumer.subscribe({ topic: SOURCE_TOPIC, fromBeginning: true });
  await consumer.run({
    eachBatch: async ({ batch }) => {
      const messages = batch.messages.map(({ key, value }) => ({ key, value, partition: batch.partition }));
      await producer.send({ topic: SINK_TOPIC, messages });
    },
  });
}

main().catch((error) => { console.error(error); process.exit(1); });
