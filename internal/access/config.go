package access

import (
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/waymark-net/waymark/internal/address"
	"github.com/waymark-net/waymark/internal/config"
)

// Section is console in the configuration.
var Section = config.Register(config.Section[Config]{
	Name: "console", Doc: "API and console for other hosts and users, with authentication", Check: (*Config).check,
})

// Config says where the console is, and who may use it.
type Config struct {
	Listen string   `yaml:"listen" doc:"host:port of the console; empty: only the unix socket, for its group. Other than on loopback, it takes tls"`
	Hosts  []string `yaml:"hosts" reload:"yes" doc:"further names under which browsers reach it; those of the certificate and the address itself are known"`
	TLS    TLS      `yaml:"tls" doc:"certificates"`
	Role   string   `yaml:"role" default:"read" oneof:"none read-anonymised read admin" reload:"yes" doc:"role of those who have a certificate, or whom a proxy names, and who are not in users"`
	Users  []User   `yaml:"users" short:"name:role" reload:"yes" doc:"roles of those who have a certificate, or whom a proxy names"`
	Tokens []Token  `yaml:"tokens" short:"name:role:hash" reload:"yes" doc:"bearer tokens; waymark console token makes one"`
	Proxy  Proxy    `yaml:"proxy" doc:"a proxy that authenticates users"`
	Key    string   `yaml:"anonymise_key" reload:"yes" doc:"path of a file with 32 bytes, or 64 hexadecimal digits, by which addresses are replaced for the role read-anonymised; empty: another key at each start of the agent"`
}

// TLS names files with certificates.
type TLS struct {
	Cert     string `yaml:"cert" reload:"yes" doc:"PEM file with the certificate of the console and those of its authorities; read again at each reload"`
	Key      string `yaml:"key" reload:"yes" doc:"PEM file with its key"`
	ClientCA string `yaml:"client_ca" reload:"yes" doc:"PEM file with the authorities whose client certificates are accepted; empty: none are"`
}

// User has a role.
type User struct {
	Name string `yaml:"name" doc:"common name of the certificate, or its first name, or what the proxy sends"`
	Role string `yaml:"role" default:"read" oneof:"none read-anonymised read admin" doc:"what the user may do; none: nothing"`
}

// Token is a bearer token, without the token.
type Token struct {
	Name string `yaml:"name" doc:"who has it, for the log"`
	Role string `yaml:"role" default:"read" oneof:"read-anonymised read admin" doc:"what its bearer may do"`
	Hash string `yaml:"hash" doc:"SHA-256 of the token, in hexadecimal digits"`
}

// Proxy is believed to have authenticated the users that it names.
type Proxy struct {
	From   []string `yaml:"from" reload:"yes" doc:"addresses and prefixes of proxies whose user_header is believed; from elsewhere, it is refused"`
	Header string   `yaml:"user_header" default:"Remote-User" reload:"yes" doc:"header with the name of the user"`
	Token  string   `yaml:"token" reload:"yes" doc:"SHA-256 of a token that the proxy sends as Authorization: Bearer; needed for proxies on loopback, since every local user can connect from there"`
}

func (c *Config) check(complain config.Complain) {
	if c.Listen == "" {
		c.checkUnused(complain)
		return
	}
	c.checkListener(complain)
	c.checkFiles(complain)
	names := map[string]bool{}
	for i, t := range c.Tokens {
		key := fmt.Sprintf("console.tokens[%d]", i)
		checkName(key, t.Name, names, complain)
		checkHash(key+".hash", t.Hash, complain)
	}
	names = map[string]bool{}
	for i, u := range c.Users {
		checkName(fmt.Sprintf("console.users[%d]", i), u.Name, names, complain)
	}
	c.checkProxy(complain)
}

// checkUnused finds what has no effect without a listener.
func (c *Config) checkUnused(complain config.Complain) {
	for key, set := range map[string]bool{
		"console.tokens": len(c.Tokens) > 0, "console.users": len(c.Users) > 0, "console.proxy.from": len(c.Proxy.From) > 0,
		"console.tls.cert": c.TLS.Cert != "", "console.tls.client_ca": c.TLS.ClientCA != "",
	} {
		if set {
			complain(key, "console.listen is missing", "write where the console listens, such as listen: \"[::1]:8474\"")
			return
		}
	}
}

func (c *Config) checkListener(complain config.Complain) {
	host, port, err := net.SplitHostPort(c.Listen)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	switch {
	case err != nil:
		complain("console.listen", fmt.Sprintf("%q is not host:port", c.Listen), "write it like 192.0.2.1:8474 or \"[::1]:8474\"")
	case len(c.Tokens) == 0 && c.TLS.ClientCA == "" && len(c.Proxy.From) == 0:
		complain("console.listen", "nobody could authenticate, and without that every local user could read all flows",
			"add console.tokens (waymark console token makes one), console.tls.client_ca or console.proxy.from; or use waymark console, which needs no listener")
	case c.TLS.Cert == "" && !isLoopback(host):
		complain("console.listen", fmt.Sprintf("%q can be reached from other hosts, and credentials would cross the network unencrypted", c.Listen),
			"set console.tls.cert and key; or write [::1] or 127.0.0.1, behind a proxy or an ssh tunnel")
	}
}

func isLoopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}

func (c *Config) checkFiles(complain config.Complain) {
	for _, f := range []struct{ key, value, needs, name string }{
		{"cert", c.TLS.Cert, c.TLS.Key, "key"},
		{"key", c.TLS.Key, c.TLS.Cert, "cert"},
		{"client_ca", c.TLS.ClientCA, c.TLS.Cert, "cert"},
	} {
		if f.value != "" && f.needs == "" {
			complain("console.tls."+f.key, f.name+" is missing", "set console.tls."+f.name+", too")
		}
	}
}

// checkName: a name is shown in the log, and has one role.
func checkName(key, name string, seen map[string]bool, complain config.Complain) {
	switch {
	case name == "":
		complain(key, "an entry without name", "write whose it is in name")
	case seen[name]:
		complain(key, "a second entry for "+name, "give each a name of its own")
	}
	seen[name] = true
}

func checkHash(key, hash string, complain config.Complain) {
	b, err := hex.DecodeString(hash)
	switch {
	case strings.HasPrefix(hash, tokenPrefix):
		complain(key, "this is the token itself, which others can now read here", "make another with waymark console token, and write the hash that it prints")
	case err != nil || len(b) != hashSize:
		complain(key, "not the 64 hexadecimal digits of a hash", "write what waymark console token prints")
	}
}

func (c *Config) checkProxy(complain config.Complain) {
	if c.Proxy.Token != "" {
		checkHash("console.proxy.token", c.Proxy.Token, complain)
	}
	if c.Proxy.Header == "" || strings.EqualFold(c.Proxy.Header, "Authorization") || strings.ContainsAny(c.Proxy.Header, " :\t\r\n") {
		complain("console.proxy.user_header", fmt.Sprintf("%q is no header that names a user", c.Proxy.Header), "write it like Remote-User")
	}
	for i, text := range c.Proxy.From {
		key := fmt.Sprintf("console.proxy.from[%d]", i)
		p, err := address.Prefix(text, "proxies")
		switch {
		case err != nil:
			complain(key, fmt.Sprintf("%q is %v", text, err), "write addresses or prefixes, such as 192.0.2.1 or 2001:db8::/64")
		case p.Bits() == 0:
			complain(key, "every host could name any user", "write the addresses of the proxies")
		case c.Proxy.Token == "" && loopback(p):
			complain(key, "every local user could name any user from there", "set console.proxy.token to the hash of a token that the proxy sends (waymark console token)")
		}
	}
}

// loopback reports whether local users can connect from the prefix without being the proxy.
func loopback(p netip.Prefix) bool {
	return p.Addr().IsLoopback() || p.Overlaps(netip.MustParsePrefix("127.0.0.0/8")) || p.Contains(netip.IPv6Loopback())
}
