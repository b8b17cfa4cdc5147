package traffic

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"
)

// BulkConfig is one TCP transfer.
type BulkConfig struct {
	To    netip.AddrPort // where the receiver listens; port 0: any
	Bytes int64

	HopByHop []byte // Hop-by-Hop Options header of all packets to the receiver; IPv6 only
}

// BulkResult is a transfer that arrived intact.
type BulkResult struct {
	Bytes    int64 // payload, as the receiver counted it
	Duration time.Duration
	Addr     netip.AddrPort // of the receiver
	From     netip.AddrPort // of the sender
	Sender   TCPInfo
	Receiver TCPInfo
}

// Rate is payload bits per second.
func (r BulkResult) Rate() float64 { return float64(r.Bytes) * 8 / r.Duration.Seconds() }

// Bulk sends bytes from one host to another over TCP and checks that they
// arrived as they were sent.
func Bulk(ctx context.Context, from, to Host, cfg BulkConfig) (BulkResult, error) {
	var r BulkResult
	var listener *net.TCPListener
	if err := to.Do(func() (err error) {
		listener, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(cfg.To))
		return err
	}); err != nil {
		return r, fmt.Errorf("bulk transfer: listen on %s: %w", cfg.To, err)
	}
	defer listener.Close()
	stop := context.AfterFunc(ctx, func() { listener.Close() })
	defer stop()
	r.Addr = listener.Addr().(*net.TCPAddr).AddrPort()

	got := &expected{source: newSource()}
	received := make(chan error, 1)
	go func() {
		var err error
		r.Bytes, r.Receiver, err = receiveBulk(ctx, listener, got)
		received <- err
	}()
	began, err := time.Now(), error(nil)
	r.From, r.Sender, err = sendBulk(ctx, from, r.Addr, cfg)
	if err != nil {
		listener.Close() // nobody else will come
	}
	if err := errors.Join(err, <-received); err != nil {
		return r, fmt.Errorf("bulk transfer to %s: %w", r.Addr, err)
	}
	r.Duration = time.Since(began)
	if r.Bytes != cfg.Bytes || got.differ {
		return r, fmt.Errorf("bulk transfer to %s: sent %d bytes, got %d, the first %d as sent", r.Addr, cfg.Bytes, r.Bytes, got.same)
	}
	return r, nil
}

func sendBulk(ctx context.Context, from Host, to netip.AddrPort, cfg BulkConfig) (local netip.AddrPort, info TCPInfo, err error) {
	var c net.Conn
	if err := from.Do(func() (err error) {
		c, err = (&net.Dialer{Control: withHeader(cfg.HopByHop)}).DialContext(ctx, "tcp", to.String())
		return err
	}); err != nil {
		return local, info, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Now()) })()
	local = c.LocalAddr().(*net.TCPAddr).AddrPort()
	if err := sendRandom(c, cfg.Bytes); err != nil {
		return local, info, fmt.Errorf("send: %w", err)
	}
	info, err = finish(c.(*net.TCPConn))
	return local, info, err
}

func receiveBulk(ctx context.Context, listener *net.TCPListener, copyTo io.Writer) (bytes int64, info TCPInfo, err error) {
	c, err := listener.AcceptTCP()
	if err != nil {
		return 0, info, fmt.Errorf("accept: %w", err)
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Now()) })()
	bytes, err = io.Copy(copyTo, c)
	if err != nil {
		return bytes, info, fmt.Errorf("receive: %w", err)
	}
	info, err = finish(c)
	return bytes, info, err
}

// sendRandom writes bytes that do not repeat.
func sendRandom(w io.Writer, count int64) error {
	source := newSource()
	buf := make([]byte, 1<<17)
	for count > 0 {
		chunk := buf[:min(count, int64(len(buf)))]
		_, _ = source.Read(chunk) // never fails
		n, err := w.Write(chunk)
		count -= int64(n)
		if err != nil {
			return err
		}
	}
	return nil
}

// newSource gives what is sent.
func newSource() *rand.ChaCha8 { return rand.NewChaCha8([32]byte{1}) }

// expected compares what arrives with what is sent: making that a second time takes a tenth of the time of two hashes, which
// took a third of the time of the tests of PDM on an emulated machine.
type expected struct {
	source *rand.ChaCha8
	buf    []byte
	same   int64 // bytes, before the first other one
	differ bool
}

func (e *expected) Write(p []byte) (int, error) {
	if e.differ {
		return len(p), nil
	}
	e.buf = append(e.buf[:0], p...)
	_, _ = e.source.Read(e.buf) // never fails
	if !bytes.Equal(e.buf, p) {
		e.differ = true
		for i := range p {
			if p[i] != e.buf[i] {
				break
			}
			e.same++
		}
		return len(p), nil
	}
	e.same += int64(len(p))
	return len(p), nil
}
