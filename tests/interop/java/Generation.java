import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * What a Java producer, a group of consumers and an admin client do, in calls that the clients of
 * every generation from 2.1 on have: prints what each of them saw, in lines of "name: value".
 *
 * Arguments: the bootstrap servers, the name of a topic, its replication factor, and settings of
 * consumers as name=value.
 */
public final class Generation {
    private static final String[] COMPRESSIONS = {"none", "gzip", "snappy", "lz4", "zstd"};
    private static final int PARTITIONS = 4;
    private static final int EACH = 20; // records of one compression
    private static final long SECONDS_MAX = 60;
    private static final long FIRST_TIME = 1_700_000_000_000L;

    private final String bootstrap;
    private final String topic;
    private final String group;
    private final short factor;
    private final Properties consumerSettings = new Properties();

    private Generation(String[] given) {
        bootstrap = given[0];
        topic = given[1];
        group = "group-of-" + topic;
        factor = Short.parseShort(given[2]);
        for (String setting : Arrays.asList(given).subList(3, given.length)) {
            String[] parts = setting.split("=", 2);
            consumerSettings.put(parts[0], parts[1]);
        }
    }

    public static void main(String[] given) throws Exception {
        new Generation(given).run();
    }

    private void run() throws Exception {
        try (AdminClient admin = AdminClient.create(common())) {
            NewTopic wanted = new NewTopic(topic, PARTITIONS, factor);
            wanted.configs(Collections.singletonMap("retention.ms", "-1"));
            admin.createTopics(Collections.singleton(wanted)).all().get();
            produceAll();
            consumeInAGroup(admin);
            seek();
            administer(admin);
            admin.deleteTopics(Collections.singleton(topic)).all().get();
            await("the topic is gone", () -> !admin.listTopics().names().get().contains(topic));
        }
    }

    private Properties common() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        return settings;
    }

    // -- producers

    private void produceAll() throws Exception {
        for (String compression : COMPRESSIONS) {
            say("offsets of " + compression, produce(compression, EACH, true));
        }
        say("offsets without idempotence", produce("none", 4, false));
    }

    /** Produce some records, round robin; the last offset in each partition. */
    private Map<Integer, Long> produce(String compression, int count, boolean idempotent) throws Exception {
        Properties settings = common();
        settings.put("key.serializer", StringSerializer.class.getName());
        settings.put("value.serializer", StringSerializer.class.getName());
        settings.put("compression.type", compression);
        settings.put("enable.idempotence", idempotent);
        settings.put("acks", idempotent ? "all" : "1");
        settings.put("linger.ms", 5);
        Map<Integer, Long> last = new TreeMap<>();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int number = 0; number < count; number++) {
                ProducerRecord<String, String> record = new ProducerRecord<>(
                    topic, number % PARTITIONS, FIRST_TIME + number, "key-" + number,
                    number % 7 == 3 ? null : compression + "-" + number);
                record.headers().add("compression", compression.getBytes());
                sent.add(producer.send(record));
            }
            for (Future<RecordMetadata> each : sent) {
                RecordMetadata found = each.get();
                last.put(found.partition(), found.offset());
            }
        }
        return last;
    }

    // -- consumers

    private KafkaConsumer<String, String> consumer() {
        Properties settings = common();
        settings.put("group.id", group);
        settings.put("key.deserializer", StringDeserializer.class.getName());
        settings.put("value.deserializer", StringDeserializer.class.getName());
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.putAll(consumerSettings);
        return new KafkaConsumer<>(settings);
    }

    private void consumeInAGroup(AdminClient admin) throws Exception {
        int written = COMPRESSIONS.length * EACH + 4;
        Map<String, String> values = new TreeMap<>();
        KafkaConsumer<String, String> first = consumer();
        KafkaConsumer<String, String> second = consumer();
        first.subscribe(Collections.singleton(topic));
        second.subscribe(Collections.singleton(topic));
        await("two members share the partitions", () -> {
            poll(first, values);
            poll(second, values);
            return first.assignment().size() == 2 && second.assignment().size() == 2;
        });
        await("everything is read", () -> {
            poll(first, values);
            poll(second, values);
            return values.size() == written;
        });
        values.forEach(Generation::say);
        first.commitSync();
        second.commitSync();
        say("members", admin.describeConsumerGroups(Collections.singleton(group)).all().get()
            .get(group).members().size());
        first.close();
        await("the other has all", () -> {
            poll(second, values);
            return second.assignment().size() == PARTITIONS;
        });
        second.close();

        Map<Integer, Long> committed = new TreeMap<>();
        for (Map.Entry<TopicPartition, OffsetAndMetadata> each : admin
                .listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().entrySet()) {
            committed.put(each.getKey().partition(), each.getValue().offset());
        }
        say("committed", committed);
        produce("lz4", 8, true);
        Map<String, String> later = new TreeMap<>();
        try (KafkaConsumer<String, String> third = consumer()) {
            third.subscribe(Collections.singleton(topic));
            await("the rest is read", () -> {
                poll(third, later);
                return later.size() >= 8;
            });
            third.commitSync();
        }
        say("read after the commit", later.size());
    }

    private static void poll(KafkaConsumer<String, String> consumer, Map<String, String> values) {
        for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofMillis(100))) {
            values.put(String.format("%d/%05d", each.partition(), each.offset()),
                each.key() + " " + each.value() + " " + each.timestamp() + " "
                + new String(each.headers().lastHeader("compression").value()));
        }
    }

    private void seek() {
        TopicPartition partition = new TopicPartition(topic, 1);
        Set<TopicPartition> one = Collections.singleton(partition);
        try (KafkaConsumer<String, String> reader = consumer()) {
            reader.assign(one);
            say("begins", reader.beginningOffsets(one).get(partition));
            say("ends", reader.endOffsets(one).get(partition));
            say("by time", reader.offsetsForTimes(
                Collections.singletonMap(partition, FIRST_TIME + 6)).get(partition).offset());
            say("after every time", reader.offsetsForTimes(
                Collections.singletonMap(partition, FIRST_TIME + 1_000_000)).get(partition));
            reader.seek(partition, 7);
            Map<String, String> values = new TreeMap<>();
            for (long turn = 0; turn < 10 * SECONDS_MAX && values.isEmpty(); turn++) {
                poll(reader, values);
            }
            say("at an offset", new TreeMap<>(values).firstEntry());
            Set<Integer> partitions = new TreeSet<>();
            reader.partitionsFor(topic).forEach(each -> partitions.add(each.partition()));
            say("partitions", partitions);
        }
    }

    // -- admin

    private void administer(AdminClient admin) throws Exception {
        TopicPartition partition = new TopicPartition(topic, 0);
        say("cut at", admin.deleteRecords(
            Collections.singletonMap(partition, RecordsToDelete.beforeOffset(5)))
            .lowWatermarks().get(partition).get().lowWatermark());
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        Config shown = admin.describeConfigs(Collections.singleton(resource)).all().get().get(resource);
        say("retention.ms", shown.get("retention.ms").value() + " " + shown.get("retention.ms").source());
        say("cleanup.policy", shown.get("cleanup.policy").value() + " " + shown.get("cleanup.policy").isDefault());
        Map<String, NewPartitions> more = new HashMap<>();
        more.put(topic, NewPartitions.increaseTo(PARTITIONS + 2));
        admin.createPartitions(more).all().get();
        try (KafkaConsumer<String, String> reader = consumer()) {
            await("there are more partitions", () -> reader.partitionsFor(topic).size() == PARTITIONS + 2);
        }
        await("the group is empty", () -> admin.describeConsumerGroups(Collections.singleton(group))
            .all().get().get(group).members().isEmpty());
        admin.deleteConsumerGroups(Collections.singleton(group)).all().get();
        say("a controller", admin.describeCluster().controller().get().id() > 0);
    }

    // -- what is common

    private interface Condition {
        boolean holds() throws Exception;
    }

    private static void await(String what, Condition condition) throws Exception {
        long end = System.nanoTime() + SECONDS_MAX * 1_000_000_000L;
        while (!condition.holds()) {
            if (System.nanoTime() > end) {
                throw new IllegalStateException("not in " + SECONDS_MAX + " s: " + what);
            }
            Thread.sleep(10);
        }
        say(what, true);
    }

    private static void say(String name, Object value) {
        System.out.println(name + ": " + value);
    }
}
