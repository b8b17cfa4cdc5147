// Package kafka sends whole intervals to Kafka, each in one transaction. Input: the intervals of package store as they end. Output:
// messages (package pipe) to waymark-kafka, which sends them. Caller: the agent.
//
// The client for Kafka takes more of a binary than the agent may have. The agent starts its program when there is something to send,
// and again when it ended.
package kafka

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/waymark-net/waymark/internal/export/interval"
	"github.com/waymark-net/waymark/internal/export/kafka/pipe"
	"github.com/waymark-net/waymark/internal/export/queue"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/programs"
)

// Section is of the configuration.
const Section = "export.kafka"

// Program sends.
const Program = "waymark-kafka"

// Config says where records go.
type Config struct {
	Brokers       []string // host:port
	Topic         string
	ID            string // empty: of host and topic
	Format        string // protobuf or json
	Compression   string
	TLS           bool
	CA, Cert, Key string // PEM files
	SASL          string // mechanism
	User          string
	PasswordFile  string
	Program       string // path; empty: Program, next to the agent or in PATH
	QueuePath     string
	QueueSize     uint64 // bytes
	Pause         time.Duration
}

// Default is a broker on the same host.
func Default() Config {
	return Config{Brokers: []string{"127.0.0.1:9092"}, Topic: "waymark-flows", Format: "protobuf", Compression: "zstd", QueueSize: 1 << 30, Pause: interval.FirstPause}
}

// Exporter sends intervals. It is a service of the agent: Listen, Run.
type Exporter struct{ *interval.Sender }

// New prepares an exporter; nothing is opened before Listen. Without its program, intervals wait.
func New(cfg Config, origin flow.Origin, log *slog.Logger) (*Exporter, error) {
	if cfg.ID == "" {
		cfg.ID = "waymark-" + origin.Host + "-" + cfg.Topic
	}
	r := &receiver{cfg: cfg, origin: origin, log: log.With("exporter", "kafka")}
	if _, err := r.configuration(); err != nil {
		return nil, err
	}
	if _, err := FindProgram(cfg.Program); err != nil {
		r.log.Error("the exporter cannot send", "error", err)
	}
	return &Exporter{interval.New(interval.Config{
		Name: "kafka", Target: strings.Join(cfg.Brokers, ",") + "/" + cfg.Topic, Key: Section + ".queue_path", Path: cfg.QueuePath, Size: cfg.QueueSize, Pause: cfg.Pause,
	}, r, log)}, nil
}

// receiver implements interval.Receiver.
type receiver struct {
	interval.Frames
	cfg    Config
	origin flow.Origin
	log    *slog.Logger

	mu    sync.Mutex
	child *child // nil: it does not run
}

// FindProgram is the path of the program; configured is what the configuration has.
func FindProgram(configured string) (string, error) {
	if configured != "" {
		if _, err := os.Stat(configured); err != nil {
			return "", fmt.Errorf(Section+".program: %w: set it to the path of "+Program, err)
		}
		return configured, nil
	}
	path, err := programs.Find(Program)
	if err != nil {
		err = fmt.Errorf("%w, or set "+Section+".program to its path", err)
	}
	return path, err
}

// configuration reads the files, so that a renewed certificate or password is used.
func (r *receiver) configuration() (c pipe.Configuration, err error) {
	c = pipe.Configuration{
		Version: obs.ReadBuild().Version, Host: r.origin.Host, Sampling: r.origin.Sampling,
		Brokers: r.cfg.Brokers, Topic: r.cfg.Topic, ID: r.cfg.ID, Format: r.cfg.Format, Compression: r.cfg.Compression,
		TLS: r.cfg.TLS, SASL: r.cfg.SASL, User: r.cfg.User,
	}
	var password []byte
	for _, f := range []struct {
		key, path string
		to        *[]byte
	}{
		{"ca", r.cfg.CA, &c.CA}, {"cert", r.cfg.Cert, &c.Cert}, {"key", r.cfg.Key, &c.Key}, {"password_file", r.cfg.PasswordFile, &password},
	} {
		if f.path == "" {
			continue
		}
		if *f.to, err = os.ReadFile(f.path); err != nil {
			return c, fmt.Errorf("%s.%s: %w: set it to a file that the agent may read", Section, f.key, err)
		}
	}
	line, _, _ := strings.Cut(string(password), "\n")
	c.Password = strings.TrimRight(line, "\r")
	return c, nil
}

// Close ends the program.
func (r *receiver) Close() { r.end(nil) }

// answerTime is how long the program may take for an interval; its own limits are shorter.
const answerTime = 2 * time.Minute

// Send has the program send an interval.
func (r *receiver) Send(ctx context.Context, batch []queue.Entry, body []byte) (kept int, err error) {
	c, err := r.configuration()
	if err != nil {
		return 0, err
	}
	to, err := r.running()
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, answerTime, errors.New(Program+" did not answer in time"))
	defer cancel()
	a, err := to.ask(ctx, c, body)
	if err == nil && (a.Run != batch[0].Run || a.Number != batch[0].Number) {
		err = fmt.Errorf("%s answers for another interval: install that of the same release as waymark", Program)
	}
	if err != nil {
		return 0, cmp.Or(r.end(err), err)
	}
	switch {
	case a.Error == "":
		return 1, nil
	case a.Refused != "":
		return 0, &interval.Refused{Reason: a.Refused, Err: errors.New(a.Error)}
	}
	return 0, errors.New(a.Error)
}

// running starts the program, unless it runs.
func (r *receiver) running() (*child, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.child != nil {
		return r.child, nil
	}
	path, err := FindProgram(r.cfg.Program)
	if err != nil {
		return nil, err
	}
	r.child, err = start(path, r.log)
	return r.child, err
}

// end ends the program, and says how it ended where that is the reason of an error.
func (r *receiver) end(failed error) error {
	r.mu.Lock()
	old := r.child
	r.child = nil
	r.mu.Unlock()
	if old == nil {
		return nil
	}
	return old.end(failed)
}

// ask sends an interval, and waits for the answer.
func (c *child) ask(ctx context.Context, cfg pipe.Configuration, body []byte) (a pipe.Answer, err error) {
	defer context.AfterFunc(ctx, c.kill)()
	if err := pipe.WriteJSON(c.in, pipe.Configure, cfg); err != nil {
		return a, err
	}
	if err := pipe.Write(c.in, pipe.Interval, body); err != nil {
		return a, err
	}
	kind, b, err := pipe.Read(c.out)
	switch {
	case ctx.Err() != nil:
		return a, context.Cause(ctx)
	case err != nil:
		return a, err
	case kind != pipe.Answered:
		return a, fmt.Errorf("%s answers with a message of unknown kind %q: install that of the same release as waymark", Program, kind)
	}
	return a, json.Unmarshal(b, &a)
}
