package ipfix

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// libfixbuf, another implementation, reads a stream of messages strictly and
// learns the names of our own elements from it (RFC 5610).
func TestLibfixbuf(t *testing.T) {
	need(t, "ipfixDump", "libfixbuf-tools")
	e := newExporter(t, func(c *Config) { c.Biflow = true })
	m := &memory{}
	e.session = m
	records := judged()
	if n, err := e.Export(context.Background(), records); n != len(records) || err != nil {
		t.Fatalf("exported %d: %v", n, err)
	}
	stream := filepath.Join(t.TempDir(), "stream")
	if err := os.WriteFile(stream, m.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("ipfixDump", "--rfc5610", "--in", stream).CombinedOutput()
	if err != nil {
		t.Fatalf("ipfixDump: %v: %s", err, out)
	}
	text := string(out)
	for _, want := range []string{
		"reverseOctetDeltaCount : 366503875925", "waymarkUnattributed : 1", "reverseWaymarkFragmentDeltaCount : 2",
		"waymarkResponderRTTNanoseconds : 31415926", "interfaceName : (len: 16) veth7", "sourceIPv6Address : 2001:0db8::0001",
	} {
		if !strings.Contains(regexp.MustCompile(`[ \t]+`).ReplaceAllString(text, " "), want) {
			t.Errorf("libfixbuf does not say %q", want)
		}
	}
	if t.Failed() {
		t.Log(text[max(0, len(text)-6000):])
	}
}
