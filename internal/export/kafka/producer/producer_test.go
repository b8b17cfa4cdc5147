package producer

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/analyze/frame"
	"github.com/waymark-net/waymark/internal/export/kafka/pipe"
	"github.com/waymark-net/waymark/test/await"
)

// TestGone: an agent that is gone ends the program, also while it waits for a broker, which would take half a minute.
func TestGone(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	in, agent := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- New(-1).Run(in, io.Discard) }()
	body := append(frame.Begin(nil), 1)
	frame.Finish(body, 1, 1, 1)
	cfg := pipe.Configuration{Brokers: []string{silent.Addr().String()}, Topic: "flows", ID: "x", Compression: "none"}
	if err := errors.Join(pipe.WriteJSON(agent, pipe.Configure, cfg), pipe.Write(agent, pipe.Interval, body)); err != nil {
		t.Fatal(err)
	}
	c, err := silent.Accept() // it is sending
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	began := time.Now()
	agent.Close()
	if err := await.Signal(t, "the end", ended); err != nil || time.Since(began) > retryTime/2 {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}

// TestDamaged: what is no interval is not sent, and says so; what the other end cannot have written ends the program.
func TestDamaged(t *testing.T) {
	var out bytes.Buffer
	run := func(kind byte) error {
		in := &bytes.Buffer{}
		if err := pipe.Write(in, kind, []byte("half")); err != nil {
			t.Fatal(err)
		}
		return New(-1).Run(in, &out)
	}
	if err := run(pipe.Interval); err != nil || !strings.Contains(out.String(), "damaged") {
		t.Errorf("%v: %q", err, &out)
	}
	for _, kind := range []byte{pipe.Configure, 'x'} {
		if err := run(kind); err == nil || !strings.Contains(err.Error(), "of the same release") {
			t.Errorf("%c: %v", kind, err)
		}
	}
}
