package access

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/waymark-net/waymark/internal/address"
	"github.com/waymark-net/waymark/internal/api"
)

// settings are a configuration as requests need it. They never change.
type settings struct {
	hosts       map[string]bool
	certificate *x509.Certificate // of the console; nil: no TLS
	tls         *tls.Config
	authorities []*x509.Certificate // of client certificates
	pool        *x509.CertPool      // of them; nil: none are accepted
	role        api.Role            // of those who are not in users
	users       map[string]api.Role
	tokens      map[hash]api.Caller
	proxies     []netip.Prefix
	header      string
	proxyToken  *hash
	anonymiser  *anonymiser
}

// none is the role of those who may do nothing.
const none api.Role = "none"

// compile reads the files of a configuration; before are the settings until now.
func compile(cfg *Config, before *settings) (*settings, error) {
	s := &settings{
		hosts: map[string]bool{}, role: api.Role(cfg.Role), users: map[string]api.Role{}, tokens: map[hash]api.Caller{},
		header: cfg.Proxy.Header,
	}
	for _, name := range cfg.Hosts {
		s.hosts[strings.ToLower(name)] = true
	}
	for _, u := range cfg.Users {
		s.users[u.Name] = api.Role(u.Role)
	}
	for _, t := range cfg.Tokens {
		s.tokens[parseHash(t.Hash)] = api.Caller{Name: t.Name, Role: api.Role(t.Role), By: byToken}
	}
	for _, text := range cfg.Proxy.From {
		p, err := address.Prefix(text, "proxies")
		if err != nil {
			return nil, fmt.Errorf("proxy.from: %w", err)
		}
		s.proxies = append(s.proxies, p)
	}
	if cfg.Proxy.Token != "" {
		h := parseHash(cfg.Proxy.Token)
		s.proxyToken = &h
	}
	if err := s.readKey(cfg.Key, before); err != nil {
		return nil, err
	}
	return s, s.readCertificates(&cfg.TLS)
}

func (s *settings) readCertificates(cfg *TLS) error {
	if cfg.Cert == "" {
		return nil
	}
	pair, err := tls.LoadX509KeyPair(cfg.Cert, cfg.Key)
	if err != nil {
		return fmt.Errorf("tls.cert and tls.key: %w; name PEM files that belong together and that the agent's user may read", err)
	}
	s.certificate = pair.Leaf
	s.tls = &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}}
	if cfg.ClientCA == "" {
		return nil
	}
	data, err := os.ReadFile(cfg.ClientCA)
	if err != nil {
		return fmt.Errorf("tls.client_ca: %w; name a PEM file that the agent's user may read", err)
	}
	if s.authorities, err = parseCertificates(data); err != nil {
		return fmt.Errorf("tls.client_ca: %s: %w", cfg.ClientCA, err)
	}
	s.pool = x509.NewCertPool()
	for _, c := range s.authorities {
		s.pool.AddCert(c)
	}
	// The handshake proves that the client has the key. Who issued the certificate is checked with the request,
	// whose answer can say what is wrong.
	s.tls.ClientAuth, s.tls.ClientCAs = tls.RequestClientCert, s.pool
	return nil
}

func parseCertificates(data []byte) (all []*x509.Certificate, err error) {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	if len(all) == 0 {
		return nil, errors.New("no certificate in it; it must be PEM")
	}
	return all, nil
}

// readKey makes the anonymiser. Without a file, it stays the same while the agent runs.
func (s *settings) readKey(path string, before *settings) error {
	key := make([]byte, keySize)
	switch {
	case path != "":
		var err error
		if key, err = readKeyFile(path); err != nil {
			return fmt.Errorf("anonymise_key: %w", err)
		}
	case before != nil && before.anonymiser.random:
		s.anonymiser = before.anonymiser
		return nil
	default:
		_, _ = rand.Read(key) // never fails
	}
	pan, err := newCryptoPAn(key)
	if err != nil {
		return fmt.Errorf("anonymise_key: %w", err)
	}
	s.anonymiser = &anonymiser{pan: pan, random: path == ""}
	return nil
}

func readKeyFile(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w; name a file that the agent's user may read", err)
	}
	if len(data) == keySize {
		return data, nil
	}
	key, err := hex.DecodeString(string(bytes.TrimSpace(data)))
	if err != nil || len(key) != keySize {
		return nil, fmt.Errorf("%s has neither 32 bytes nor 64 hexadecimal digits; write one with: openssl rand -hex 32", path)
	}
	return key, nil
}
