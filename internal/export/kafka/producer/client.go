package producer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/waymark-net/waymark/internal/export/kafka"
	"github.com/waymark-net/waymark/internal/export/kafka/pipe"
)

func decode(b []byte) (c pipe.Configuration, err error) {
	if err = json.Unmarshal(b, &c); err != nil {
		err = fmt.Errorf("read the configuration: %w: install waymark-kafka of the same release as waymark", err)
	}
	return c, err
}

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

// lastWithID is the last version of the request for which the client adds a group to a transaction by itself. Later ones belong to
// transactions (KIP-890, part 2) for which the client offers no offsets without a consumer.
const lastWithID = 4

// retryTime is how long a request is repeated; the agent repeats the interval.
const (
	retryTime  = 15 * time.Second
	retryPause = 100 * time.Millisecond
)

// newClient opens nothing yet. Connections end with life: the client's own end waits for answers that are outstanding.
func (p *Producer) newClient(life context.Context) (*kgo.Client, error) {
	c := &p.cfg
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(int16(kmsg.TxnOffsetCommit), lastWithID)
	options := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...), kgo.ClientID("waymark"), kgo.SoftwareNameAndVersion("waymark", "1"), kgo.MaxVersions(versions),
		kgo.TransactionalID(c.ID), kgo.TransactionTimeout(transactionTime), kgo.RetryTimeout(retryTime), kgo.DialTimeout(retryTime / 3), kgo.RequestRetries(5),
		kgo.RetryBackoffFn(func(int) time.Duration { return retryPause }),
		kgo.ProducerBatchCompression(codecs[c.Compression]), kgo.ProducerBatchMaxBytes(p.batch), kgo.MaxBufferedRecords(20_000),
		kgo.UnknownTopicRetries(1), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)),
	}
	secure, err := tlsConfig(c)
	if err != nil {
		return nil, err
	}
	options = append(options, kgo.Dialer(func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, p.sockets, secure, network, address)
		p.reach.dialed(err)
		if err == nil {
			context.AfterFunc(life, func() { _ = conn.Close() })
		}
		return conn, err
	}))
	if m := mechanism(c); m != nil {
		options = append(options, kgo.SASL(m))
	}
	return kgo.NewClient(options...)
}

// mechanism is how the client says who it is; nil: it does not.
func mechanism(c *pipe.Configuration) sasl.Mechanism {
	switch c.SASL {
	case "plain":
		return plain.Auth{User: c.User, Pass: c.Password}.AsMechanism()
	case "scram-sha-256":
		return scram.Auth{User: c.User, Pass: c.Password}.AsSha256Mechanism()
	case "scram-sha-512":
		return scram.Auth{User: c.User, Pass: c.Password}.AsSha512Mechanism()
	}
	return nil
}

// tlsConfig is nil without TLS.
func tlsConfig(c *pipe.Configuration) (*tls.Config, error) {
	if !c.TLS {
		return nil, nil
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(c.CA) > 0 {
		if t.RootCAs = x509.NewCertPool(); !t.RootCAs.AppendCertsFromPEM(c.CA) {
			return nil, errors.New(kafka.Section + ".ca: no certificate in it: set it to the PEM file of the broker's authority")
		}
	}
	if len(c.Cert) > 0 {
		pair, err := tls.X509KeyPair(c.Cert, c.Key)
		if err != nil {
			return nil, fmt.Errorf("%[1]s.cert and %[1]s.key: %[2]w: set them to PEM files that belong together", kafka.Section, err)
		}
		t.Certificates = []tls.Certificate{pair}
	}
	return t, nil
}

func dial(ctx context.Context, from *sockets, secure *tls.Config, network, address string) (net.Conn, error) {
	plain, err := (&net.Dialer{Control: from.control}).DialContext(ctx, network, address)
	if err != nil || secure == nil {
		return plain, err
	}
	own := secure.Clone()
	if own.ServerName, _, err = net.SplitHostPort(address); err != nil {
		return nil, errors.Join(err, plain.Close())
	}
	c := tls.Client(plain, own)
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(&handshakeError{err}, plain.Close())
	}
	return c, nil
}
