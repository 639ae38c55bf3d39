// franz-go as a program: franz BOOTSTRAP COMMAND JSON
//
// A command prints its answer as one line of JSON.  `member` runs until SIGTERM and prints a line
// per event, as tests/e2e/member.py does.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const secondsMax = 60

type message struct {
	Value     string      `json:"value"`
	Key       *string     `json:"key"`
	Headers   [][2]string `json:"headers"`
	Partition int32       `json:"partition"`
	Offset    int64       `json:"offset"`
	Timestamp int64       `json:"timestamp"`
}

type options struct {
	Topic             string            `json:"topic"`
	Partitions        int32             `json:"partitions"`
	Configs           map[string]string `json:"configs"`
	Messages          []message         `json:"messages"`
	Compression       string            `json:"compression"`
	Idempotent        bool              `json:"idempotent"`
	Count             int               `json:"count"`
	Offset            int64             `json:"offset"`
	Timestamp         int64             `json:"timestamp"`
	Key               string            `json:"key"`
	Value             string            `json:"value"`
	Group             string            `json:"group"`
	SessionTimeout    int64             `json:"sessionTimeout"`
	HeartbeatInterval int64             `json:"heartbeatInterval"`
	CommitInterval    int64             `json:"autoCommitInterval"`
}

var compressions = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

type command func(ctx context.Context, seeds []string, given options) (any, error)

var commands = map[string]command{
	"createTopic":    createTopic,
	"partitionCount": partitionCount,
	"produce":        produce,
	"consume":        consume,
	"readFrom":       readFrom,
	"offsetForTime":  offsetForTime,
	"configs":        configs,
	"alterConfig":    alterConfig,
	"lag":            lag,
	"member":         member,
}

func connect(seeds []string, more ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append(more, kgo.SeedBrokers(seeds...), kgo.FetchMaxWait(100*time.Millisecond))...)
}

func withAdmin(seeds []string, use func(*kadm.Client) (any, error)) (any, error) {
	client, err := connect(seeds)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return use(kadm.NewClient(client))
}

func createTopic(ctx context.Context, seeds []string, given options) (any, error) {
	return withAdmin(seeds, func(admin *kadm.Client) (any, error) {
		settings := map[string]*string{}
		for name, value := range given.Configs {
			settings[name] = kadm.StringPtr(value)
		}
		_, err := admin.CreateTopic(ctx, given.Partitions, -1, settings, given.Topic)
		return true, err
	})
}

func partitionCount(ctx context.Context, seeds []string, given options) (any, error) {
	return withAdmin(seeds, func(admin *kadm.Client) (any, error) {
		found, err := admin.ListTopics(ctx, given.Topic)
		if err != nil {
			return nil, err
		}
		return len(found[given.Topic].Partitions), found[given.Topic].Err
	})
}

func produce(ctx context.Context, seeds []string, given options) (any, error) {
	settings := []kgo.Opt{
		kgo.ProducerBatchCompression(compressions[given.Compression]),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(5 * time.Millisecond),
	}
	if !given.Idempotent {
		settings = append(settings, kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(1))
	}
	client, err := connect(seeds, settings...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	records := []*kgo.Record{}
	for _, each := range given.Messages {
		record := &kgo.Record{Topic: given.Topic, Partition: each.Partition, Value: []byte(each.Value)}
		if each.Key != nil {
			record.Key = []byte(*each.Key)
		}
		for _, header := range each.Headers {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: header[0], Value: []byte(header[1])})
		}
		records = append(records, record)
	}
	return len(records), client.ProduceSync(ctx, records...).FirstErr()
}

func describe(record *kgo.Record) message {
	found := message{
		Value: string(record.Value), Partition: record.Partition, Offset: record.Offset,
		Timestamp: record.Timestamp.UnixMilli(), Headers: [][2]string{},
	}
	if record.Key != nil {
		key := string(record.Key)
		found.Key = &key
	}
	for _, header := range record.Headers {
		found.Headers = append(found.Headers, [2]string{header.Key, string(header.Value)})
	}
	return found
}

func read(ctx context.Context, client *kgo.Client, count int) (any, error) {
	defer client.Close()
	found := []message{}
	for len(found) < count {
		fetched := client.PollFetches(ctx)
		if err := fetched.Err(); err != nil {
			return nil, err
		}
		fetched.EachRecord(func(record *kgo.Record) { found = append(found, describe(record)) })
	}
	sort.SliceStable(found, func(a, b int) bool { return found[a].Partition < found[b].Partition })
	return found[:count], nil
}

func consume(ctx context.Context, seeds []string, given options) (any, error) {
	client, err := connect(seeds, kgo.ConsumeTopics(given.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, err
	}
	return read(ctx, client, given.Count)
}

func readFrom(ctx context.Context, seeds []string, given options) (any, error) {
	client, err := connect(seeds, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
		given.Topic: {0: kgo.NewOffset().At(given.Offset)},
	}))
	if err != nil {
		return nil, err
	}
	return read(ctx, client, given.Count)
}

func offsetForTime(ctx context.Context, seeds []string, given options) (any, error) {
	return withAdmin(seeds, func(admin *kadm.Client) (any, error) {
		found, err := admin.ListOffsetsAfterMilli(ctx, given.Timestamp, given.Topic)
		if err != nil {
			return nil, err
		}
		ends, err := admin.ListEndOffsets(ctx, given.Topic)
		if err != nil {
			return nil, err
		}
		offset, _ := found.Lookup(given.Topic, 0)
		end, _ := ends.Lookup(given.Topic, 0)
		return map[string]int64{"offset": offset.Offset, "end": end.Offset}, offset.Err
	})
}

func configs(ctx context.Context, seeds []string, given options) (any, error) {
	return withAdmin(seeds, func(admin *kadm.Client) (any, error) {
		found, err := admin.DescribeTopicConfigs(ctx, given.Topic)
		if err != nil {
			return nil, err
		}
		shown := map[string]string{}
		for _, each := range found[0].Configs {
			shown[each.Key] = each.MaybeValue()
		}
		return shown, found[0].Err
	})
}

func alterConfig(ctx context.Context, seeds []string, given options) (any, error) {
	return withAdmin(seeds, func(admin *kadm.Client) (any, error) {
		found, err := admin.AlterTopicConfigs(ctx,
			[]kadm.AlterConfig{{Name: given.Key, Value: &given.Value}}, given.Topic)
		if err != nil {
			return nil, err
		}
		return true, found[0].Err
	})
}

// lag has what is not read yet of each partition, by what a group has committed.
func lag(ctx context.Context, seeds []string, given options) (any, error) {
	return withAdmin(seeds, func(admin *kadm.Client) (any, error) {
		found, err := admin.Lag(ctx, given.Group)
		if err != nil {
			return nil, err
		}
		shown := map[int32]int64{}
		described := found[given.Group]
		for _, each := range described.Lag.Sorted() {
			if each.Topic == given.Topic {
				shown[each.Partition] = each.Lag
			}
		}
		return shown, described.Error()
	})
}

func member(_ context.Context, seeds []string, given options) (any, error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var lock sync.Mutex
	assigned := map[int32]bool{}
	change := func(is bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
			lock.Lock()
			defer lock.Unlock()
			for _, partition := range changed[given.Topic] {
				if is {
					assigned[partition] = true
				} else {
					delete(assigned, partition)
				}
			}
			now := []int32{}
			for partition := range assigned {
				now = append(now, partition)
			}
			say(map[string]any{"assigned": now})
		}
	}
	client, err := connect(seeds,
		kgo.ConsumerGroup(given.Group), kgo.ConsumeTopics(given.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(time.Duration(given.SessionTimeout)*time.Millisecond),
		kgo.HeartbeatInterval(time.Duration(given.HeartbeatInterval)*time.Millisecond),
		kgo.AutoCommitInterval(time.Duration(given.CommitInterval)*time.Millisecond),
		kgo.OnPartitionsAssigned(change(true)), kgo.OnPartitionsRevoked(change(false)),
		kgo.OnPartitionsLost(change(false)))
	if err != nil {
		return nil, err
	}
	for ctx.Err() == nil {
		client.PollFetches(ctx).EachRecord(func(record *kgo.Record) {
			say(map[string]any{"record": map[string]any{"value": string(record.Value),
				"partition": record.Partition, "offset": record.Offset}})
		})
	}
	last, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err = client.CommitUncommittedOffsets(last)
	client.CloseAllowingRebalance()
	return map[string]any{"assigned": []int32{}}, err
}

func say(value any) {
	line, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
}

func main() {
	bootstrap, name, text := os.Args[1], os.Args[2], os.Args[3]
	var given options
	if err := json.Unmarshal([]byte(text), &given); err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), secondsMax*time.Second)
	defer cancel()
	answer, err := commands[name](ctx, strings.Split(bootstrap, ","), given)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	say(answer)
}
