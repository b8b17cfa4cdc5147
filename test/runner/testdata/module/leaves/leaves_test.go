package leaves

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestLeaves(t *testing.T) {
	for _, args := range [][]string{
		{"ip", "netns", "add", "left-namespace"},
		{"ip", "link", "add", "left0", "type", "veth", "peer", "name", "left1"},
		{"tc", "qdisc", "add", "dev", "lo", "clsact"},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
	}
	for file, content := range map[string]string{
		"/proc/sys/net/ipv4/ip_forward":         "1",
		filepath.Join(os.TempDir(), "left-tmp"): "",
		"/run/left-run":                         "",
	} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// bpffs holds folders and pins, no files.
	if err := os.Mkdir("/sys/fs/bpf/left-pins", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := exec.Command("sh", "-c", "sleep 3600 >&- 2>&- <&- &").Run(); err != nil {
		t.Fatal(err)
	}
}
