// Package kafka runs Apache Kafka for tests: one node, broker and controller. Input: topics. Output: addresses, and what is committed in
// topics. Callers: tests of the exporter.
package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/waymark-net/waymark/internal/export/clienttls/tlstest"
	"github.com/waymark-net/waymark/test/await"
)

// User and Password are those of the listener with SASL (SCRAM-SHA-256). The user may do what Allow says; on the other listener,
// everything is allowed.
const (
	User     = "alice"
	Password = "s3cret"
)

// Broker may be killed, and started again with the same data at the same ports.
type Broker struct {
	Plain  string // host:port
	Secure string // host:port with TLS and SASL
	CA     string // PEM file
	In     func(func() error) error
	dir    string
	files  string
	cmd    *exec.Cmd
	said   *await.Text
}

const config = `process.roles=broker,controller
node.id=1
controller.quorum.voters=1@%[3]s
listeners=PLAIN://%[1]s,SECURE://%[2]s,CONTROLLER://%[3]s
listener.security.protocol.map=PLAIN:PLAINTEXT,SECURE:SASL_SSL,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAIN
listener.name.secure.sasl.enabled.mechanisms=SCRAM-SHA-256
listener.name.secure.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
ssl.keystore.type=PEM
ssl.keystore.location=%[4]s/server.pem
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
log.dirs=%[4]s/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
num.network.threads=1
num.io.threads=2
background.threads=2
broker.session.timeout.ms=1500
broker.heartbeat.interval.ms=300
`

// installed is the directory that scripts/setup made; empty: there is none.
func installed() string {
	dir, err := os.Getwd()
	for err == nil && dir != "/" {
		if list, _ := filepath.Glob(filepath.Join(dir, ".cache/kafka/*/data/bootstrap.checkpoint")); len(list) == 1 {
			return filepath.Dir(filepath.Dir(list[0]))
		}
		dir = filepath.Dir(dir)
	}
	return ""
}

// New prepares a broker; the test is skipped where it is not installed.
func New(t testing.TB) *Broker {
	t.Helper()
	b := &Broker{files: installed(), dir: t.TempDir()}
	if _, err := exec.LookPath("java"); err != nil || b.files == "" {
		t.Skip("Kafka is not installed: scripts/setup test")
	}
	pki := tlstest.New(t)
	b.CA = pki.CA
	ports := freePorts(t)
	b.Plain, b.Secure = ports[0], ports[1]
	text := fmt.Sprintf(config, ports[0], ports[1], ports[2], b.dir)
	if err := errors.Join(os.WriteFile(filepath.Join(b.dir, "server.properties"), []byte(text), 0o600),
		join(filepath.Join(b.dir, "server.pem"), pki.Key, pki.Cert),
		os.CopyFS(filepath.Join(b.dir, "data"), os.DirFS(filepath.Join(b.files, "data")))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Kill)
	return b
}

// Start starts a broker with topics.
func Start(t testing.TB, topics ...string) *Broker {
	t.Helper()
	b := New(t)
	b.Again(t)
	b.Create(t, topics...)
	return b
}

func join(to string, from ...string) error {
	var all []byte
	for _, path := range from {
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		all = append(all, b...)
	}
	return os.WriteFile(to, all, 0o600)
}

func freePorts(t testing.TB) (list []string) {
	t.Helper()
	for range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		list = append(list, l.Addr().String())
	}
	return list
}

// Again starts it, and waits until it serves.
func (b *Broker) Again(t testing.TB) {
	t.Helper()
	b.cmd = exec.CommandContext(context.Background(), "java", "-Xmx256m", "-Xms64m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Djava.io.tmpdir="+b.dir,
		"-cp", b.files+"/lib/*", "kafka.Kafka", filepath.Join(b.dir, "server.properties"))
	b.cmd.Dir = b.dir
	b.said = &await.Text{}
	b.cmd.Stdout, b.cmd.Stderr = b.said, b.said
	begin := b.cmd.Start
	if b.In != nil {
		begin = func() error { return b.In(b.cmd.Start) }
	}
	if err := begin(); err != nil {
		t.Fatal(err)
	}
	await.Success(t, func() error {
		err := b.in(func() error {
			c, err := net.Dial("tcp", b.Plain)
			if err != nil {
				return err
			}
			return c.Close()
		})
		if err != nil {
			return fmt.Errorf("%w: %s", err, strings.Join(slices.Compact(strings.Split(b.said.String(), "\n")), "; "))
		}
		return nil
	})
}

func (b *Broker) in(do func() error) error {
	if b.In != nil {
		return b.In(do)
	}
	return do()
}

// Kill kills it.
func (b *Broker) Kill() {
	if b.cmd != nil && b.cmd.Process != nil {
		_ = b.cmd.Process.Kill()
		_ = b.cmd.Wait()
	}
}
