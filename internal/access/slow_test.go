package access

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// TestSlowClients: connections that say nothing, or only the begin of something, are closed by the server.
func TestSlowClients(t *testing.T) {
	p := newPKI(t)
	c := start(t, configuration(p), p)
	closed := make(chan string, 3)
	watch := func(name string, conn io.Reader) {
		_, err := io.Copy(io.Discard, conn)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			name = name + " stays"
		}
		closed <- name
	}
	for name, says := range map[string]string{"silent": "", "begin of a handshake": "\x16\x03\x01"} {
		conn := dial(t, c)
		if _, err := io.WriteString(conn, says); err != nil {
			t.Fatal(err)
		}
		go watch(name, conn)
	}
	secured := tls.Client(dial(t, c), &tls.Config{RootCAs: p.client(t, "").RootCAs, ServerName: "server.example"})
	if _, err := io.WriteString(secured, "GET / HTTP/1.1\r\nHost: server.example\r\nX: "); err != nil {
		t.Fatal(err)
	}
	go watch("begin of a header", secured)
	for range cap(closed) {
		if name := <-closed; name != "silent" && name != "begin of a handshake" && name != "begin of a header" {
			t.Error(name)
		}
	}
}

func dial(t *testing.T, c *console) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", c.server.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return conn
}
