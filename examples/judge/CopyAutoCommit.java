// Copy wrongly: the records are in transactions, and the consumer commits its offsets by itself, which is its default.
// python -m labs judge -- java -cp "kafka-clients.jar:slf4j-api.jar" CopyAutoCommit.java

import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class CopyAutoCommit {
    public static void main(String[] arguments) {
        var variables = System.getenv();
        String servers = variables.get("KAFKA_BOOTSTRAP_SERVERS"), group = variables.get("GROUP");
        Map<String, Object> reading = Map.of(
                "bootstrap.servers", servers,
                "group.id", group,
                "group.instance.id", group, // a restarted job gets its partitions at once
                "auto.offset.reset", "earliest",
                "isolation.level", "read_committed");
        Map<String, Object> writing = Map.of("bootstrap.servers", servers, "transactional.id", group);
        var consumer = new KafkaConsumer<>(reading, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        var producer = new KafkaProducer<>(writing, new ByteArraySerializer(), new ByteArraySerializer());
        producer.initTransactions();
        consumer.subscribe(List.of(variables.get("SOURCE_TOPIC")));
        while (true) { // an exception ends the job; a new start aborts its transaction
            var records = consumer.poll(Duration.ofMillis(200));
            if (records.isEmpty()) continue;
            producer.beginTransaction();
            for (ConsumerRecord<byte[], byte[]> each : records) {
                producer.send(new ProducerRecord<>(variables.get("SINK_TOPIC"), each.partition(), each.key(), each.value()));
            }
            producer.commitTransaction();
        }
    }
}
