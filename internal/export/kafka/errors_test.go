package kafka_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waymark-net/waymark/internal/export/clienttls/tlstest"
	"github.com/waymark-net/waymark/internal/export/kafka"
	"github.com/waymark-net/waymark/test/await"
	broker "github.com/waymark-net/waymark/test/kafka"
)

// password is a file with one.
func password(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// secure is a configuration with TLS and SASL.
func (s *scene) secure(t *testing.T, text string) kafka.Config {
	c := s.config(t, "secure")
	c.Brokers, c.TLS, c.CA, c.SASL, c.User, c.PasswordFile = []string{s.Secure}, true, s.CA, "scram-sha-256", broker.User, password(t, text)
	return c
}

// testErrors: each names what is wrong, and what helps; the records wait.
func (s *scene) testErrors(t *testing.T) {
	other := tlstest.New(t)
	for what, tt := range map[string]struct {
		config kafka.Config
		want   string
	}{
		"topic":     {s.with(t, func(c *kafka.Config) { c.Topic = "nowhere" }), "create it, or set export.kafka.topic"},
		"password":  {s.secure(t, "wrong"), "set export.kafka.user and export.kafka.password_file"},
		"mechanism": {s.with(t, func(c *kafka.Config) { *c = s.secure(t, "x"); c.SASL = "plain" }), "set export.kafka.sasl to a mechanism that the broker has"},
		"authority": {s.with(t, func(c *kafka.Config) { *c = s.secure(t, broker.Password); c.CA = other.CA }), "set export.kafka.ca to the PEM file"},
		"no TLS":    {s.with(t, func(c *kafka.Config) { *c = s.secure(t, broker.Password); c.Brokers = []string{s.Plain} }), "set export.kafka.tls to false"},
		"TLS":       {s.with(t, func(c *kafka.Config) { c.Brokers = []string{s.Secure} }), "set export.kafka.tls"},
		"no broker": {s.with(t, func(c *kafka.Config) { c.Brokers = []string{"127.0.0.1:1"} }), "start Kafka there, or set export.kafka.brokers"},
		"program":   {s.with(t, func(c *kafka.Config) { c.Program = "/nowhere/waymark-kafka" }), "export.kafka.program"},
		"not it":    {s.with(t, func(c *kafka.Config) { c.Program = "/bin/false" }), "waymark-kafka ended: exit status 1"},
	} {
		t.Run(what, func(t *testing.T) {
			a := newAgent(t, tt.config)
			a.fill(3)
			await.Success(t, func() error {
				st := a.Status()
				if !strings.Contains(st.LastError, tt.want) || st.Queued != 3 || st.Retries == 0 {
					return fmt.Errorf("want %q: %+v", tt.want, st)
				}
				return nil
			})
			a.end()
			if st := a.Status(); st.Queued != 3 || len(st.Lost) > 0 {
				t.Errorf("%+v", st)
			}
		})
	}
	missing := s.with(t, func(c *kafka.Config) { c.PasswordFile = "/nowhere/password" })
	if _, err := kafka.New(missing, origin, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "export.kafka.password_file") {
		t.Errorf("no file: %v", err)
	}
}

func (s *scene) with(t *testing.T, change func(*kafka.Config)) kafka.Config {
	c := s.config(t, "json")
	change(&c)
	return c
}

// testSecure: a password that is corrected is used without a restart; and the user needs what the how-to says, but nothing else.
func (s *scene) testSecure(t *testing.T) {
	cfg := s.secure(t, "wrong")
	a := newAgent(t, cfg)
	a.fill(10)
	says := func(text string) {
		t.Helper()
		await.Success(t, func() error {
			if st := a.Status(); !strings.Contains(st.LastError, text) {
				return fmt.Errorf("want %q: %+v", text, st)
			}
			return nil
		})
	}
	says("export.kafka.password_file")
	if err := os.WriteFile(cfg.PasswordFile, []byte(broker.Password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	says("grant READ, WRITE and DESCRIBE on the topic")
	s.Allow(t, kmsg.ACLResourceTypeTopic, "secure", kmsg.ACLOperationDescribe)
	says("grant WRITE and DESCRIBE on the transactional id waymark-athos-secure")
	s.Allow(t, kmsg.ACLResourceTypeTransactionalId, "waymark-athos-secure", kmsg.ACLOperationWrite, kmsg.ACLOperationDescribe)
	says("grant READ on the group waymark-athos-secure")
	s.Allow(t, kmsg.ACLResourceTypeGroup, "waymark-athos-secure", kmsg.ACLOperationRead)
	says("grant READ, WRITE and DESCRIBE on the topic")
	s.Allow(t, kmsg.ACLResourceTypeTopic, "secure", kmsg.ACLOperationWrite)
	says("grant READ, WRITE and DESCRIBE on the topic")
	s.Allow(t, kmsg.ACLResourceTypeTopic, "secure", kmsg.ACLOperationRead)
	a.sent(t)
	s.once(t, "secure", a.records)
}

// testLarge: a broker that takes smaller batches gets smaller ones; what it does not take at all is lost and counted.
func (s *scene) testLarge(t *testing.T) {
	s.CreateSmall(t, "small", 20_000)
	s.CreateSmall(t, "tiny", 100)
	cfg := s.config(t, "small")
	cfg.Compression = "none"
	a := newAgent(t, cfg)
	a.fill(1000)
	a.sent(t)
	s.once(t, "small", a.records)
	cfg = s.config(t, "tiny")
	cfg.Compression = "none"
	a = newAgent(t, cfg)
	a.fill(7)
	await.Success(t, func() error {
		st := a.Status()
		if len(st.Lost) != 1 || st.Lost[0].Reason != "too_large" || st.Lost[0].Count != 7 || !strings.Contains(st.LastError, "max.message.bytes") {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})
	if n := len(s.Read(t, "tiny")); n > 0 {
		t.Errorf("%d records are there", n)
	}
}

// testFenced: of two agents with one transactional id, one is fenced, and says so.
func (s *scene) testFenced(t *testing.T) {
	first, second := newAgent(t, s.config(t, "fenced")), newAgent(t, s.config(t, "fenced"))
	first.fill(1)
	first.sent(t)
	second.fill(1)
	second.sent(t)
	first.fill(1)
	first.sent(t)
	if text := first.log.String(); !strings.Contains(text, "another agent uses the transactional id waymark-athos-fenced: set export.kafka.id") {
		t.Errorf("no error: %s", text)
	}
	if n := len(s.Read(t, "fenced")); n != 3 {
		t.Errorf("%d records are there, want 3", n)
	}
}
