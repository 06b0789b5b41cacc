// Copy at least once with franz-go: the offsets are committed after each batch. A kill in between doubles its records.
// go build copy_at_least_once.go, then: python -m labs judge -- ./copy_at_least_once
package main

import (
	"context"
	"log"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	ctx, group := context.Background(), os.Getenv("GROUP")
	client, err := kgo.NewClient(
		kgo.SeedBrokers(os.Getenv("KAFKA_BOOTSTRAP_SERVERS")),
		kgo.ConsumerGroup(group),
		kgo.InstanceID(group), // a restarted job gets its partitions at once
		kgo.ConsumeTopics(os.Getenv("SOURCE_TOPIC")),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.DisableAutoCommit(),
		kgo.DefaultProduceTopic(os.Getenv("SINK_TOPIC")),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	exitAt(err)
	for {
		fetches := client.PollFetches(ctx)
		exitAt(fetches.Err())
		var copies []*kgo.Record
		fetches.EachRecord(func(record *kgo.Record) {
			copies = append(copies, &kgo.Record{Partition: record.Partition, Key: record.Key, Value: record.Value})
		})
		exitAt(client.ProduceSync(ctx, copies...).FirstErr())
		exitAt(client.CommitUncommittedOffsets(ctx))
	}
}

func exitAt(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
