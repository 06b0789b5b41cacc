import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;

import static java.time.Duration.ofMillis;

/**
 * The IP count as a Kafka Streams application: {@code java IpCount NAME=VALUE …}.
 *
 * <p>{@code StreamsEngine} makes the arguments: names that begin with {@code job.} describe the job, the others are the
 * application's configuration. Each window's count is emitted once, when the event time of the partition has passed the
 * window's end by the lateness. The program runs until a signal or an error ends it; the last line printed is the error.
 */
public final class IpCount {
    private final Map<String, String> job;
    private final Pattern access;

    private IpCount(Map<String, String> job) {
        this.job = job;
        this.access = Pattern.compile(job.get("job.source.pattern"));
    }

    public static void main(String[] arguments) {
        Map<String, String> job = new HashMap<>();
        Properties configuration = new Properties();
        for (String argument : arguments) {
            String[] parts = argument.split("=", 2);
            if (parts[0].startsWith("job.")) {
                job.put(parts[0], parts[1]);
            } else {
                configuration.put(parts[0], parts[1]);
            }
        }
        KafkaStreams streams = new KafkaStreams(new IpCount(job).topology(), configuration);
        streams.setUncaughtExceptionHandler(error -> {
            System.err.println(error);
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.ERROR) {
                Runtime.getRuntime().halt(1);
            }
        });
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }

    private Topology topology() {
        StreamsBuilder builder = new StreamsBuilder();
        Consumed<String, String> consumed =
            Consumed.with(Serdes.String(), Serdes.String()).withTimestampExtractor(this::eventTime);
        TimeWindows windows = TimeWindows.ofSizeAndGrace(millis("job.window.ms"), millis("job.lateness.ms"));
        builder.stream(job.get("job.source.topic"), consumed)
            .filter((ip, line) -> access.matcher(line).matches())
            .groupByKey(Grouped.with(Serdes.String(), Serdes.String()))
            .windowedBy(windows)
            .count()
            // Not EmitStrategy.onWindowClose(): it looks once a second, and only when another record comes.
            .suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded()))
            .toStream()
            .filter((window, count) -> !window.key().equals(job.get("job.closing.ip")))
            .map(IpCount::result)
            .to(job.get("job.sink.topic"), Produced.with(Serdes.String(), Serdes.String()));
        return builder.build();
    }

    private java.time.Duration millis(String name) {
        return ofMillis(Long.parseLong(job.get(name)));
    }

    /** The time that the line says; a malformed one does not move the time of the partition. */
    private long eventTime(ConsumerRecord<Object, Object> record, long partitionTime) {
        String line = (String) record.value();
        if (line == null || !access.matcher(line).matches()) {
            return Math.max(partitionTime, 0);
        }
        return Long.parseLong(line.substring(0, line.indexOf(',')));
    }

    private static KeyValue<String, String> result(Windowed<String> window, Long count) {
        String row = "{\"window_start\":%d,\"ip\":\"%s\",\"count\":%d}";
        return KeyValue.pair(window.key(), String.format(row, window.window().start(), escaped(window.key()), count));
    }

    private static String escaped(String text) {
        return text.replace("\\", "\\\\").replace("\"", "\\\"");
    }
}
