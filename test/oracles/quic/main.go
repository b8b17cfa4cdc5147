// Command quic is a QUIC server or client, for tests of what stands between them. The server writes its number at the
// beginning of each stream and then what it gets; its connection IDs begin with bytes that it is given. The client talks
// over some connections, gives each another address while it lasts, and talks again.
//
//	quic server ADDRESS NUMBER PREFIX
//	quic client ADDRESS CONNECTIONS OTHER-LOCAL-ADDRESS
package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
)

const protocol = "echo"

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "quic:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 4 {
		return fmt.Errorf("want 4 arguments, got %q", args)
	}
	number, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	if args[0] == "server" {
		prefix, err := hex.DecodeString(args[3])
		if err != nil {
			return err
		}
		return serve(args[1], byte(number), prefix)
	}
	return talk(args[1], number, args[3])
}

// ids are connection IDs of 12 bytes that begin alike.
type ids []byte

func (p ids) GenerateConnectionID() (quic.ConnectionID, error) {
	b := make([]byte, p.ConnectionIDLen())
	if _, err := rand.Read(b); err != nil {
		return quic.ConnectionID{}, err
	}
	copy(b, p)
	return quic.ConnectionIDFromBytes(b), nil
}

func (p ids) ConnectionIDLen() int { return 12 }

func certificate() (tls.Certificate, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}, err
}

func serve(address string, number byte, prefix []byte) error {
	cert, err := certificate()
	if err != nil {
		return err
	}
	at, err := net.ResolveUDPAddr("udp", address)
	if err != nil {
		return err
	}
	socket, err := net.ListenUDP("udp", at)
	if err != nil {
		return err
	}
	transport := &quic.Transport{Conn: socket, ConnectionIDGenerator: ids(prefix)}
	l, err := transport.Listen(&tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{protocol}}, nil)
	if err != nil {
		return err
	}
	fmt.Println("listening")
	for {
		c, err := l.Accept(context.Background())
		if err != nil {
			return err
		}
		go func() {
			for {
				s, err := c.AcceptStream(context.Background())
				if err != nil {
					return
				}
				go func() {
					defer s.Close()
					if _, err := s.Write([]byte{number}); err == nil {
						_, _ = io.Copy(s, s)
					}
				}()
			}
		}()
	}
}

// talk prints a line for each connection: the number of its server, and what became of it.
func talk(address string, connections int, other string) error {
	at, err := net.ResolveUDPAddr("udp", address)
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	lines := make([]string, connections)
	for n := range connections {
		all.Go(func() {
			server, err := connection(at, net.ParseIP(other))
			lines[n] = fmt.Sprintf("%d moved", server)
			if err != nil {
				lines[n] = fmt.Sprintf("%d %v", server, err)
			}
		})
	}
	all.Wait()
	for _, line := range lines {
		fmt.Println(line)
	}
	return nil
}

func connection(at *net.UDPAddr, other net.IP) (server int, err error) {
	ctx, stop := context.WithTimeout(context.Background(), 20*time.Second)
	defer stop()
	first, err := net.ListenUDP("udp", nil)
	if err != nil {
		return -1, err
	}
	c, err := (&quic.Transport{Conn: first}).Dial(ctx, at, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}}, nil) //nolint:gosec // the server has just made its certificate
	if err != nil {
		return -1, fmt.Errorf("dial: %w", err)
	}
	defer c.CloseWithError(0, "")
	if server, err = exchange(ctx, c, 20_000); err != nil {
		return server, fmt.Errorf("before it moved: %w", err)
	}
	second, err := net.ListenUDP("udp", &net.UDPAddr{IP: other})
	if err != nil {
		return server, err
	}
	path, err := c.AddPath(&quic.Transport{Conn: second})
	if err != nil {
		return server, fmt.Errorf("another path: %w", err)
	}
	probe, end := context.WithTimeout(ctx, 3*time.Second)
	defer end()
	if err := path.Probe(probe); err != nil {
		return server, fmt.Errorf("probe: %w", err)
	}
	if err := path.Switch(); err != nil {
		return server, fmt.Errorf("switch: %w", err)
	}
	again, err := exchange(ctx, c, 20_000)
	if err == nil && again != server {
		err = fmt.Errorf("server %d answers, not %d", again, server)
	}
	return server, err
}

// exchange sends bytes, which have to come back behind the number of the server.
func exchange(ctx context.Context, c *quic.Conn, size int) (server int, err error) {
	s, err := c.OpenStreamSync(ctx)
	if err != nil {
		return -1, err
	}
	deadline, _ := ctx.Deadline()
	_ = s.SetDeadline(deadline)
	sent := make([]byte, size)
	_, _ = rand.Read(sent)
	go func() {
		_, _ = s.Write(sent)
		_ = s.Close()
	}()
	got, err := io.ReadAll(s)
	if err != nil || len(got) == 0 {
		return -1, fmt.Errorf("%d bytes came back: %w", len(got), err)
	}
	if !bytes.Equal(got[1:], sent) {
		return int(got[0]), fmt.Errorf("%d other bytes came back", len(got)-1)
	}
	return int(got[0]), nil
}
