package kafka

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waymark-net/waymark/test/await"
)

// fetchWait is how long the broker waits for more.
const fetchWait = 100 * time.Millisecond

// client asks the broker, from where it runs.
func (b *Broker) client(t testing.TB, options ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append(options, kgo.SeedBrokers(b.Plain), kgo.Dialer(func(ctx context.Context, network, address string) (c net.Conn, err error) {
		err = b.in(func() error {
			var d net.Dialer
			c, err = d.DialContext(ctx, network, address)
			return err
		})
		return c, err
	}))...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Create makes topics of one partition.
func (b *Broker) Create(t testing.TB, topics ...string) {
	t.Helper()
	c := b.client(t)
	defer c.Close()
	for _, name := range topics {
		await.Success(t, func() error { return create(t.Context(), c, name, nil) })
	}
}

// CreateSmall makes a topic that takes batches of so many bytes.
func (b *Broker) CreateSmall(t testing.TB, topic string, bytes int) {
	t.Helper()
	c := b.client(t)
	defer c.Close()
	setting := kmsg.NewCreateTopicsRequestTopicConfig()
	setting.Name, setting.Value = "max.message.bytes", kmsg.StringPtr(fmt.Sprint(bytes))
	if err := create(t.Context(), c, topic, []kmsg.CreateTopicsRequestTopicConfig{setting}); err != nil {
		t.Fatal(err)
	}
}

func create(ctx context.Context, c *kgo.Client, name string, settings []kmsg.CreateTopicsRequestTopicConfig) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor, topic.Configs = name, 1, 1, settings
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(ctx, c)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.Topics[0].ErrorCode)
}

// Allow has User do something with a topic, a group or a transactional id.
func (b *Broker) Allow(t testing.TB, kind kmsg.ACLResourceType, name string, operations ...kmsg.ACLOperation) {
	t.Helper()
	c := b.client(t)
	defer c.Close()
	req := kmsg.NewPtrCreateACLsRequest()
	for _, operation := range operations {
		one := kmsg.NewCreateACLsRequestCreation()
		one.ResourceType, one.ResourceName, one.ResourcePatternType = kind, name, kmsg.ACLResourcePatternTypeLiteral
		one.Principal, one.Host, one.Operation, one.PermissionType = "User:"+User, "*", operation, kmsg.ACLPermissionTypeAllow
		req.Creations = append(req.Creations, one)
	}
	resp, err := req.RequestWith(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range resp.Results {
		if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
			t.Fatal(err)
		}
	}
}

// Read is all that is committed in a topic.
func (b *Broker) Read(t testing.TB, topic string) (list []*kgo.Record) {
	t.Helper()
	c := b.client(t, kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(), kgo.FetchMaxWait(fetchWait))
	defer c.Close()
	end := b.end(t, c, topic)
	for at := int64(0); at < end; {
		fetches := c.PollFetches(t.Context())
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if at = r.Offset + 1; !r.Attrs.IsControl() {
				list = append(list, r)
			}
		})
	}
	return list
}

// end is the offset at which transactions are open, or the topic ends.
func (b *Broker) end(t testing.TB, c *kgo.Client, topic string) int64 {
	t.Helper()
	req := kmsg.NewPtrListOffsetsRequest()
	req.IsolationLevel = 1
	one, partition := kmsg.NewListOffsetsRequestTopic(), kmsg.NewListOffsetsRequestTopicPartition()
	partition.Timestamp = -1 // the last one
	one.Topic, one.Partitions = topic, append(one.Partitions, partition)
	req.Topics = append(req.Topics, one)
	resp, err := req.RequestWith(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	p := resp.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
		t.Fatal(err)
	}
	return p.Offset
}
