// Transfer wrongly with kafkajs: one posting is sent after the other, without a transaction. A kill in between loses or
// makes money: the restarted job sends the first one again.
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
    eachMessage: async ({ message }) => {
      const { id, from, to, amount } = JSON.parse(message.value);
      const debit = JSON.stringify({ id, account: from, amount: -amount });
      const credit = JSON.stringify({ id, account: to, amount });
      await producer.send({ topic: SINK_TOPIC, messages: [{ value: debit }] });
      await producer.send({ topic: SINK_TOPIC, messages: [{ value: credit }] });
    },
  });
}

main().catch((error) => { console.error(error); process.exit(1); });
