package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/waymark-net/waymark/internal/filter"
	"github.com/waymark-net/waymark/internal/inband/policy"
)

// kinds says what a text may hold beyond being text. Each check returns what is
// wrong with it.
var kinds = map[string]struct {
	name    string // in the reference page
	plural  string
	allowed string
	check   func(string) error
	number  bool // may be written as a number, too
}{
	"glob":      {"name or glob", "names or globs", "write a name as ip -br link prints it, or a pattern like veth*", checkGlob, false},
	"netns":     {"name", "names", "write a name as ip netns prints it, or all", checkNetns, false},
	"listen":    {"host:port", "", "write it like 127.0.0.1:9474 or [::1]:9474", checkListen, false},
	"broker":    {"host:port", "hosts and ports", "write it like kafka.example:9092 or [2001:db8::1]:9092", checkListen, false},
	"loopback":  {"loopback host:port", "", "write it like 127.0.0.1:8080 or [::1]:8080; to serve other hosts, put an authenticating proxy in front of the unix socket", checkLoopback, false},
	"collector": {"URL", "", "write it like udp://[2001:db8::1]:4739, tcp://host:4739 or tls://host:4740", checkCollector, false},
	"endpoint":  {"URL", "", "write it like http://127.0.0.1:4318 or https://collector.example:4318", checkEndpoint, false},
	"analyzer":  {"URL", "", "write it like https://analyzer.example:8476", checkAnalyzer, false},
	"socket":    {"path", "", "write an absolute path of at most 107 bytes", checkSocket, false},
	"directory": {"path", "", "write an absolute path", checkDirectory, false},
	"file":      {"path", "", "write the path of a file, or - for stdout", checkFile, false},
	"prefix6":   {"IPv6 prefix", "IPv6 prefixes", "write it like 2001:db8::/32, 2001:db8::1 or ::/0", checkPrefix, false},
	"proto":     {"protocol", "protocols", "write " + orList(policy.ProtoNames()) + ", or a number up to 255", checkProto, true},
	"ports":     {"port or range", "ports and ranges", "write a port, or a range like \"8000-8099\"", checkPorts, true},
	"bits":      {"number", "numbers", "write a decimal or hexadecimal number, such as 51966 or 0xcafe", checkBits, true},
	"ratio":     {"k/n or n", "", "write n for one packet in n, or k/n, such as 1/100 or 3/10; n is at most 1000000", checkRatio, true},
	"address":   {"IP address", "", "write it like 192.0.2.1 or 2001:db8::1", checkAnyAddress, false},
	"prefix":    {"IP address or prefix", "IP addresses and prefixes", "write it like 192.0.2.1, 192.0.2.0/24 or 2001:db8::/32", checkAnyPrefix, false},
	"address6":  {"IPv6 address", "", "write it like 2001:db8::1", checkAddress, false},
	"speed":     {"speed", "", "write it like 100Mbit, 2.5Gbit or 56kbit", checkSpeed, false},
	"percent":   {"percentage", "", "write a percentage above 0, like 0.5%, at most 100%", checkPercent, false},
	"filter":    {"filter", "filters", "write it like proto tcp and not port 22, as for waymark flows", checkFilter, false},
}

// ParseBits reads a number of up to 64 bits, decimal or hexadecimal after 0x.
func ParseBits(s string) (uint64, error) {
	text, base := strings.ReplaceAll(s, "_", ""), 10
	if digits, ok := strings.CutPrefix(text, "0x"); ok {
		text, base = digits, 16
	}
	n, err := strconv.ParseUint(text, base, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number of up to 64 bits", s)
	}
	return n, nil
}

// maxRatio bounds n of k/n.
const maxRatio = 1_000_000

// ParseRatio reads k/n, or n for one in n.
func ParseRatio(s string) (k, n uint32, err error) {
	text := s
	if !strings.Contains(s, "/") {
		text = "1/" + s
	}
	left, right, _ := strings.Cut(text, "/")
	a, errA := strconv.ParseUint(left, 10, 32)
	b, errB := strconv.ParseUint(right, 10, 32)
	if errA != nil || errB != nil || a == 0 || a > b || b > maxRatio {
		return 0, 0, fmt.Errorf("%q is no share of packets", s)
	}
	return uint32(a), uint32(b), nil
}

func checkRatio(s string) error {
	_, _, err := ParseRatio(s)
	return err
}

// checkAnyAddress accepts an empty text: there is no address.
func checkAnyAddress(s string) error {
	if s == "" {
		return nil
	}
	if a, err := netip.ParseAddr(s); err != nil || a.Is4In6() || a.Zone() != "" || a.IsMulticast() || a.IsUnspecified() {
		return fmt.Errorf("%q is not the IP address of a host", s)
	}
	return nil
}

func checkAnyPrefix(s string) error {
	if !strings.Contains(s, "/") && s != "" {
		return checkAnyAddress(s)
	}
	if p, err := netip.ParsePrefix(s); err != nil || p.Addr().Is4In6() {
		return fmt.Errorf("%q is no prefix", s)
	}
	return nil
}

// checkAddress accepts an empty text: there is no address.
func checkAddress(s string) error {
	if s == "" {
		return nil
	}
	if a, err := netip.ParseAddr(s); err != nil || !a.Is6() || a.Is4In6() || a.Zone() != "" || a.IsMulticast() || a.IsUnspecified() {
		return fmt.Errorf("%q is not an IPv6 address of a host", s)
	}
	return nil
}

// checkBits accepts an empty text: the number is not set.
func checkBits(s string) error {
	if s == "" {
		return nil
	}
	_, err := ParseBits(s)
	return err
}

// maxIfName is IFNAMSIZ without the closing NUL.
const maxIfName = 15

// MatchAny reports whether one of the names and globs of a configuration matches a name. They were checked when it was read.
func MatchAny(globs []string, name string) bool {
	return slices.ContainsFunc(globs, func(glob string) bool {
		is, _ := path.Match(glob, name)
		return is
	})
}

func checkGlob(s string) error {
	if _, err := path.Match(s, ""); err != nil {
		return fmt.Errorf("%q is not a pattern: %w", s, err)
	}
	if s == "" || strings.ContainsAny(s, "/: \t\n") { // as the kernel (dev_valid_name)
		return fmt.Errorf("%q is not the name of an interface", s)
	}
	if !strings.ContainsAny(s, `*?[\`) && len(s) > maxIfName {
		return fmt.Errorf("%q is longer than the %d bytes of an interface name", s, maxIfName)
	}
	return nil
}

func checkNetns(s string) error {
	if s == "" || s == "." || s == ".." || strings.ContainsAny(s, "/ \t\n") {
		return fmt.Errorf("%q is not the name of a network namespace", s)
	}
	return nil
}

func checkListen(s string) error {
	_, port, err := net.SplitHostPort(s)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("%q is not host:port", s)
	}
	return nil
}

// checkLoopback keeps the API off the network: it knows no passwords.
func checkLoopback(s string) error {
	if s == "" {
		return nil
	}
	if err := checkListen(s); err != nil {
		return err
	}
	host, _, _ := net.SplitHostPort(s)
	if host == "localhost" {
		return nil
	}
	if addr, err := netip.ParseAddr(host); err != nil || !addr.IsLoopback() {
		return fmt.Errorf("%q can be reached from other hosts, and the API has no authentication", s)
	}
	return nil
}

func checkCollector(s string) error {
	u, err := url.Parse(s)
	if err != nil {
		return fmt.Errorf("%q is not a URL", s)
	}
	switch {
	case u.Scheme != "udp" && u.Scheme != "tcp" && u.Scheme != "tls":
		return fmt.Errorf("%q does not begin with udp://, tcp:// or tls://", s)
	case u.Hostname() == "" || u.Port() == "" || checkListen(u.Host) != nil:
		return fmt.Errorf("host or port is missing in %q", s)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "":
		return fmt.Errorf("%q has more than a host and a port", s)
	}
	return nil
}

func checkEndpoint(s string) error {
	u, err := url.Parse(s)
	if err != nil {
		return fmt.Errorf("%q is not a URL", s)
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("%q does not begin with http:// or https://", s)
	case u.Hostname() == "" || u.Port() != "" && checkListen(u.Host) != nil:
		return fmt.Errorf("host or port is missing in %q", s)
	case u.User != nil:
		return fmt.Errorf("a password stands in %q, which everybody who sees the configuration would know: write it into headers_file", u.Redacted())
	case u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("%q has more than host, port and path", s)
	}
	return nil
}

func checkAnalyzer(s string) error {
	if err := checkEndpoint(s); err != nil {
		return err
	}
	if !strings.HasPrefix(s, "https://") {
		return fmt.Errorf("%q does not begin with https://", s)
	}
	return nil
}

// checkSocket: a longer path does not fit into sockaddr_un.
func checkSocket(s string) error {
	if !strings.HasPrefix(s, "/") {
		return fmt.Errorf("%q is not absolute", s)
	}
	if len(s) > 107 {
		return fmt.Errorf("%q has %d bytes", s, len(s))
	}
	return nil
}

func checkDirectory(s string) error {
	if s != "" && !filepath.IsAbs(s) {
		return fmt.Errorf("%q is not an absolute path", s)
	}
	return nil
}

func checkFile(s string) error {
	if s == "" {
		return fmt.Errorf("no path given")
	}
	return nil
}

func checkPrefix(s string) error {
	_, err := policy.ParsePrefix(s)
	return err
}

func checkProto(s string) error {
	if _, err := policy.ParseProto(s); err != nil {
		return fmt.Errorf("%q is not a protocol", s)
	}
	return nil
}

func checkFilter(s string) error {
	_, err := filter.Parse(s)
	var wrong *filter.Error
	if !errors.As(err, &wrong) {
		return err
	}
	at := "its end"
	if wrong.Pos < wrong.End {
		at = strconv.Quote(wrong.Text[wrong.Pos:wrong.End])
	}
	return fmt.Errorf("filter %q, at %s: %s", s, at, wrong.What)
}

func checkPorts(s string) error {
	_, err := policy.ParsePorts(s)
	return err
}
