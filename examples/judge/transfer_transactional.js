// Transfer exactly once with kafkajs: both postings and the offsets of the group are in one transaction.
// npm install kafkajs, then: python -m labs judge --workload transfer -- node transfer_transactional.js
const { Kafka, logLevel } = require("kafkajs");
const { KAFKA_BOOTSTRAP_SERVERS, SOURCE_TOPIC, SINK_TOPIC, GROUP } = process.env;

const kafka = new Kafka({ brokers: KAFKA_BOOTSTRAP_SERVERS.split(","), logLevel: logLevel.ERROR });
// A killed member stays in the group for sessionTimeout; kafkajs has no group.instance.id.
const consumer = kafka.consumer({ groupId: GROUP, sessionTimeout: 6000, readUncommitted: false });
const producer = kafka.producer({ transactionalId: GROUP, idempotent: true, maxInFlightRequests: 1 });

function postings({ value }) {
  const { id, from, to, amount } = JSON.parse(value);
  return [{ id, account: from, amount: -amount }, { id, account: to, amount }].map((each) => ({ value: JSON.stringify(each) }));
}

async function post({ batch }) {
  const offset = String(BigInt(batch.lastOffset()) + 1n);
  const transaction = await producer.transaction();
  await transaction.send({ topic: SINK_TOPIC, messages: batch.messages.flatMap(postings) });
  const topics = [{ topic: SOURCE_TOPIC, partitions: [{ partition: batch.partition, offset }] }];
  await transaction.sendOffsets({ consumerGroupId: GROUP, topics });
  await transaction.commit();
}

async function main() {
  await producer.connect();
  await consumer.connect();
  await consumer.subscribe({ topic: SOURCE_TOPIC, fromBeginning: true });
  consumer.on(consumer.events.CRASH, () => process.exit(1)); // a new start aborts the open transaction
  await consumer.run({ autoCommit: false, partitionsConsumedConcurrently: 1, eachBatch: post });
}

main().catch((error) => { console.error(error); process.exit(1); });
