package producer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waymark-net/waymark/internal/analyze/frame"
	"github.com/waymark-net/waymark/internal/export/jsonl"
	"github.com/waymark-net/waymark/internal/export/kafka/message"
	"github.com/waymark-net/waymark/internal/export/kafka/pipe"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/store"
)

// session is a client that nobody has fenced, and the last interval that was committed.
type session struct {
	cfg    *pipe.Configuration
	client *kgo.Client
	end    func()   // of all connections
	topic  [16]byte // its id
	last   string
}

var (
	errDamaged = errors.New("the interval cannot be decoded")
	errAnother = errors.New("the producer id changed within a transaction")
)

// identity is that of an interval. The checksum tells it from another one with the same number, as after a snapshot of the machine
// was restored.
func identity(f *frame.Frame) string {
	return fmt.Sprintf("%016x-%d-%08x", f.Boot, f.Sequence, f.Sum)
}

// begin takes the transactional id: the broker ends what is under way with it. Only then it is certain what was committed last.
func (s *session) begin(ctx context.Context) error {
	if err := s.findTopic(ctx); err != nil {
		return err
	}
	if _, _, err := s.client.ProducerID(ctx); err != nil {
		return err
	}
	return s.readLast(ctx)
}

func (s *session) findTopic(ctx context.Context) error {
	req := kmsg.NewPtrMetadataRequest()
	one := kmsg.NewMetadataRequestTopic()
	one.Topic = kmsg.StringPtr(s.cfg.Topic)
	req.Topics = append(req.Topics, one)
	resp, err := req.RequestWith(ctx, s.client)
	if err != nil {
		return err
	}
	for i := range resp.Topics {
		s.topic = resp.Topics[i].TopicID
		return kerr.ErrorForCode(resp.Topics[i].ErrorCode)
	}
	return kerr.UnknownTopicOrPartition
}

// readLast reads the offset that the last transaction committed.
func (s *session) readLast(ctx context.Context) error {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.RequireStable = true
	group := kmsg.NewOffsetFetchRequestGroup()
	group.Group = s.cfg.ID
	topic := kmsg.NewOffsetFetchRequestGroupTopic()
	topic.Topic, topic.TopicID, topic.Partitions = s.cfg.Topic, s.topic, []int32{0}
	group.Topics = append(group.Topics, topic)
	req.Groups = append(req.Groups, group)
	resp, err := req.RequestWith(ctx, s.client)
	if err != nil {
		return err
	}
	for _, g := range resp.Groups {
		if err := kerr.ErrorForCode(g.ErrorCode); err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
			return err
		}
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					return err
				}
				if p.Metadata != nil {
					s.last = *p.Metadata
				}
			}
		}
	}
	return nil
}

// deliver writes the records of an interval and its identity in one transaction, unless that was done before.
func (s *session) deliver(ctx context.Context, f *frame.Frame) error {
	name := identity(f)
	if s.last == name || f.Rows == 0 {
		return nil
	}
	var decoder store.Decoder
	ended, err := decoder.Decode(f.Payload)
	if err != nil {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	if err := s.client.BeginTransaction(); err != nil {
		return err
	}
	id, epoch, err := s.client.ProducerID(ctx)
	if err != nil {
		return err
	}
	if err := s.produce(ctx, &ended); err != nil {
		return err
	}
	if err := s.commitOffset(ctx, f, id, epoch); err != nil {
		return err
	}
	// The client may have taken another id of its own accord: what was written with the first one is aborted.
	if nowID, nowEpoch, err := s.client.ProducerID(ctx); err != nil || nowID != id || nowEpoch != epoch {
		return errors.Join(errAnother, err)
	}
	if err := s.client.EndTransaction(ctx, kgo.TryCommit); err != nil {
		return err
	}
	s.last = name
	return nil
}

// produce writes the records. Those of a host have its name as key, and so are in one partition, in their order.
func (s *session) produce(ctx context.Context, ended *store.Ended) error {
	key := []byte(s.cfg.Host)
	encode := s.encoder(ended)
	var mu sync.Mutex
	var failed error
	fail := func(_ *kgo.Record, err error) {
		if err == nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if failed == nil || tooLarge(err) {
			failed = err
		}
	}
	ended.Each(func(r *flow.Record) {
		s.client.Produce(ctx, &kgo.Record{Topic: s.cfg.Topic, Key: key, Value: encode(r), Timestamp: r.Last}, fail)
	})
	err := s.client.Flush(ctx)
	mu.Lock()
	defer mu.Unlock()
	return cmp.Or(failed, err)
}

// encoder is a function that makes the value of a record.
func (s *session) encoder(ended *store.Ended) func(*flow.Record) []byte {
	origin := flow.Origin{Host: s.cfg.Host, Sampling: s.cfg.Sampling}
	if s.cfg.Format == "json" {
		return func(r *flow.Record) []byte { return jsonl.Append(nil, &origin, r) }
	}
	_, to := ended.Period()
	e := message.Encoder{Origin: origin, Received: to}
	return func(r *flow.Record) []byte { return e.Append(nil, r) }
}

// commitOffset adds the identity of the interval to the transaction.
func (s *session) commitOffset(ctx context.Context, f *frame.Frame, id int64, epoch int16) error {
	add := kmsg.NewPtrAddOffsetsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = s.cfg.ID, id, epoch, s.cfg.ID
	added, err := add.RequestWith(ctx, s.client)
	if err == nil {
		err = kerr.ErrorForCode(added.ErrorCode)
	}
	if err != nil {
		return err
	}
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = s.cfg.ID, id, epoch, s.cfg.ID
	partition := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	partition.Offset, partition.Metadata = int64(f.Sequence), kmsg.StringPtr(identity(f))
	topic := kmsg.NewTxnOffsetCommitRequestTopic()
	topic.Topic = s.cfg.Topic
	topic.Partitions = append(topic.Partitions, partition)
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(ctx, s.client)
	if err != nil {
		return err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return errors.New("the broker does not say whether it took the offset")
	}
	return kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
}
