// Copy exactly once with franz-go: the records and the offsets of the group are in one transaction.
// go build copy_transactional.go, then: python -m labs judge -- ./copy_transactional
package main

import (
	"context"
	"log"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	ctx, group := context.Background(), os.Getenv("GROUP")
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(os.Getenv("KAFKA_BOOTSTRAP_SERVERS")),
		kgo.ConsumerGroup(group),
		kgo.InstanceID(group), // a restarted job gets its partitions at once
		kgo.ConsumeTopics(os.Getenv("SOURCE_TOPIC")),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(), // wait until the killed job's offsets are committed or aborted
		kgo.TransactionalID(group),
		kgo.DefaultProduceTopic(os.Getenv("SINK_TOPIC")),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	exitAt(err)
	for { // an error ends the job; a new start aborts its transaction
		fetches := session.PollFetches(ctx)
		exitAt(fetches.Err())
		exitAt(session.Begin())
		fetches.EachRecord(func(record *kgo.Record) {
			copied := &kgo.Record{Partition: record.Partition, Key: record.Key, Value: record.Value}
			session.Produce(ctx, copied, func(_ *kgo.Record, err error) { exitAt(err) })
		})
		// If the group has rebalanced meanwhile, this aborts, and the records are read again.
		_, err := session.End(ctx, kgo.TryCommit)
		exitAt(err)
	}
}

func exitAt(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
