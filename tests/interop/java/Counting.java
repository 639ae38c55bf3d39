import java.io.File;
import java.time.Duration;
import java.util.Arrays;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;

/**
 * A Streams application that counts words, at least once: it runs until it has counted as many as
 * it is told, and prints what it counted, and how many records its state was restored from.
 *
 * Arguments: the bootstrap servers, the application's id, the topics it reads and writes, a folder
 * for its state, and the number of words to wait for.
 */
public final class Counting {
    private static final String STORE = "counts";
    private static final long SECONDS_MAX = 90;

    private Counting() { }

    public static void main(String[] given) throws Exception {
        long wanted = Long.parseLong(given[5]);
        AtomicLong restored = new AtomicLong();
        try (KafkaStreams streams = new KafkaStreams(topology(given[2], given[3]).build(), settings(given))) {
            streams.setGlobalStateRestoreListener(new StateRestoreListener() {
                @Override
                public void onRestoreStart(TopicPartition partition, String store, long begin, long end) { }

                @Override
                public void onBatchRestored(TopicPartition partition, String store, long end, long count) { }

                @Override
                public void onRestoreEnd(TopicPartition partition, String store, long count) {
                    restored.addAndGet(count);
                }
            });
            streams.start();
            Map<String, Long> counts = new TreeMap<>();
            long end = System.nanoTime() + SECONDS_MAX * 1_000_000_000L;
            while (counts.values().stream().mapToLong(Long::longValue).sum() < wanted) {
                if (System.nanoTime() > end || streams.state() == KafkaStreams.State.ERROR) {
                    throw new IllegalStateException(streams.state() + " " + counts + ", not " + wanted);
                }
                Thread.sleep(50);
                counts = counted(streams);
            }
            System.out.println("restored: " + restored.get());
            counts.forEach((word, count) -> System.out.println(word + ": " + count));
            streams.close(Duration.ofSeconds(30));
        }
    }

    private static Properties settings(String[] given) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", given[0]);
        settings.put("application.id", given[1]);
        settings.put("state.dir", new File(given[4]).getAbsolutePath());
        settings.put("processing.guarantee", "at_least_once");
        settings.put("num.stream.threads", 2);
        settings.put("replication.factor", -1);
        settings.put("commit.interval.ms", 200);
        settings.put("statestore.cache.max.bytes", 0);
        settings.put("consumer.auto.offset.reset", "earliest");
        settings.put("session.timeout.ms", 2000); // a closed application does not leave its group
        settings.put("heartbeat.interval.ms", 300);
        settings.put("default.key.serde", Serdes.StringSerde.class.getName());
        settings.put("default.value.serde", Serdes.StringSerde.class.getName());
        return settings;
    }

    /** Words are made keys, so that there is a topic between the two halves. */
    private static StreamsBuilder topology(String source, String target) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(source)
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
            .count(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as(STORE))
            .toStream()
            .mapValues(String::valueOf)
            .to(target, Produced.with(Serdes.String(), Serdes.String()));
        return builder;
    }

    private static Map<String, Long> counted(KafkaStreams streams) {
        Map<String, Long> found = new TreeMap<>();
        if (streams.state() != KafkaStreams.State.RUNNING) {
            return found;
        }
        ReadOnlyKeyValueStore<String, Long> store = streams.store(
            StoreQueryParameters.fromNameAndType(STORE, QueryableStoreTypes.keyValueStore()));
        try (KeyValueIterator<String, Long> all = store.all()) {
            while (all.hasNext()) {
                KeyValue<String, Long> each = all.next();
                found.put(each.key, each.value);
            }
        }
        return found;
    }
}
