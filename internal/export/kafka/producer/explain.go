package producer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/export/clienttls"
	"github.com/waymark-net/waymark/internal/export/kafka"
	"github.com/waymark-net/waymark/internal/export/kafka/pipe"
)

// tooLarge reports whether a broker takes no batch, or record, of that size.
func tooLarge(err error) bool {
	return errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge)
}

// remedies are by what a broker answers. %s is the transactional id.
var remedies = []struct {
	err  error
	text string
}{
	{kerr.UnknownTopicOrPartition, "the topic does not exist: create it, or set " + kafka.Section + ".topic to one that does"},
	{kerr.InvalidTopicException, "set " + kafka.Section + ".topic to a name that Kafka allows"},
	{kerr.TopicAuthorizationFailed, "grant READ, WRITE and DESCRIBE on the topic to the user of " + kafka.Section},
	{kerr.GroupAuthorizationFailed, "grant READ on the group %s to the user of " + kafka.Section},
	{kerr.TransactionalIDAuthorizationFailed, "grant WRITE and DESCRIBE on the transactional id %s to the user of " + kafka.Section},
	{kerr.SaslAuthenticationFailed, "set " + kafka.Section + ".user and " + kafka.Section + ".password_file to what the broker knows"},
	{kerr.UnsupportedSaslMechanism, "set " + kafka.Section + ".sasl to a mechanism that the broker has"},
	{kerr.IllegalSaslState, "set " + kafka.Section + ".sasl to none, or brokers to a port that asks for a user"},
	{kerr.ProducerFenced, another},
	{kerr.InvalidProducerEpoch, another},
	{errAnother, another},
	{kerr.InvalidTransactionTimeout, "set transaction.max.timeout.ms of the broker to a minute at least"},
	{kerr.MessageTooLarge, "set max.message.bytes of the topic to 65536 at least"},
	{kerr.RecordListTooLarge, "set max.message.bytes of the topic to 65536 at least"},
	{kerr.NotEnoughReplicas, "start the brokers that are away: fewer replicas than min.insync.replicas are there"},
	{unix.ECONNREFUSED, "start Kafka there, or set " + kafka.Section + ".brokers to where it listens"},
	{unix.ENETUNREACH, "add a route to the broker"},
	{unix.EHOSTUNREACH, "add a route to the broker"},
}

const another = "another agent uses the transactional id %s: set " + kafka.Section + ".id of one of them to another"

// handshakeError is one of TLS.
type handshakeError struct{ err error }

func (h *handshakeError) Error() string { return "TLS handshake: " + h.err.Error() }

func (h *handshakeError) Unwrap() error { return h.err }

// explain adds what a user can do.
func explain(err error, c *pipe.Configuration) error {
	for _, r := range remedies {
		if errors.Is(err, r.err) {
			text := r.text
			if strings.Contains(text, "%s") {
				text = fmt.Sprintf(text, c.ID)
			}
			return fmt.Errorf("%w: %s", err, text)
		}
	}
	var record tls.RecordHeaderError
	var handshake *handshakeError
	var closed *kgo.ErrFirstReadEOF
	switch {
	case errors.As(err, &record), errors.As(err, &handshake) && errors.Is(handshake.err, io.EOF):
		return fmt.Errorf("%w: set "+kafka.Section+".tls to false, or brokers to a port with TLS", err)
	case errors.As(err, &closed), strings.Contains(err.Error(), "tls alert"):
		return fmt.Errorf("%w: the broker closes connections at once: set "+kafka.Section+".tls and "+kafka.Section+".sasl to what it expects", err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: the broker does not answer in time: look at its log, or set "+kafka.Section+".brokers to others", err)
	}
	files := clienttls.Files{Section: kafka.Section}
	return fmt.Errorf("%w%s", err, files.Remedy(kafka.Section+".brokers", err))
}
