package e2e

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/test/await"
)

const serviceConfig = quick + `interfaces: [to-*]
pdm: {policies: [{to: "::/0", proto: tcp}]}
export: [{jsonl: {path: /var/log/waymark/flows.jsonl}}]
`

// ipv6MTU is the MTU that the host's stack uses.
func ipv6MTU(t *testing.T, h *lab.Host) string {
	t.Helper()
	return strings.TrimSpace(must(t, h, "sysctl", "-n", "net.ipv6.conf."+h.Interfaces[0].Name+".mtu"))
}

// TestService: the installed unit, under systemd and with all of its restrictions, does what the agent does without
// them; so do the drop-ins. What a killed agent changed, the restarted one restores.
func TestService(t *testing.T) {
	t.Parallel()
	_, alpha, beta := newLab(t)
	other := labtest.NewHost(t)
	must(t, other, "ip", "link", "set", "lo", "up")
	mtu := ipv6MTU(t, alpha)
	s := bootSystemd(t, alpha)
	s.configure(t, serviceConfig)
	s.must(t, "systemctl", "start", "waymark")

	if effective, bounding := capabilitiesOf(t, s.mainPID(t)); effective != capBPF|capNetAdmin ||
		bounding&^(capBPF|capNetAdmin|capPerfmon) != 0 {
		t.Errorf("capabilities %#x, bounding set %#x", effective, bounding)
	}
	// Somebody in the group of the service asks.
	counts := func(from *lab.Host, to, iface string) {
		t.Helper()
		must(t, from, "bash", "-c", "echo >/dev/udp/"+to+"/9")
		await.Success(t, func() error {
			out := s.must(t, "setpriv", "--reuid=nobody", "--regid=nogroup", "--groups=waymark",
				"waymark", "flows", "-o", "csv", "iface "+iface)
			if !strings.Contains(out, to) {
				return notYet("no datagram to %s in %s", to, out)
			}
			return nil
		})
	}
	there, link := beta.Addr6().String(), alpha.Interfaces[0].Name
	counts(alpha, there, link)
	if lowered := ipv6MTU(t, alpha); lowered == mtu {
		t.Errorf("the MTU stayed %s: no headroom for marks", mtu)
	}
	wants(t, s.do(t, "setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "waymark", "status"),
		3, "permission denied", "group")

	s.must(t, "systemctl", "kill", "-s", "KILL", "waymark")
	await.Success(t, func() error {
		state := s.must(t, "systemctl", "show", "-p", "NRestarts,ActiveState", "waymark")
		if !strings.Contains(state, "NRestarts=1\n") || !strings.Contains(state, "ActiveState=active\n") {
			return notYet("the service is %q", state)
		}
		return nil
	})
	counts(alpha, there, link)
	s.must(t, "systemctl", "stop", "waymark")
	if now := ipv6MTU(t, alpha); now != mtu {
		t.Errorf("MTU %s after the service was killed, restarted and stopped, %s before", now, mtu)
	}
	if got := attached(t, alpha); got != "" {
		t.Errorf("the stopped service left %s", got)
	}

	s.configure(t, quick+"interfaces: [to-*]\nprobe: afpacket\n")
	s.dropIn(t, "afpacket")
	s.must(t, "systemctl", "restart", "waymark")
	counts(alpha, there, link)
	if effective, _ := capabilitiesOf(t, s.mainPID(t)); effective != capNetRaw {
		t.Errorf("afpacket: capabilities %#x", effective)
	}

	s.configure(t, quick+"interfaces: [to-*, lo]\nnetns: ["+other.Netns+"]\n")
	s.dropIn(t, "netns")
	s.must(t, "systemctl", "restart", "waymark")
	counts(alpha, there, link)
	counts(other, "127.0.0.1", "lo")
	s.must(t, "systemctl", "stop", "waymark")
}

// TestServiceExposure: the unit is as hardened as the documents say, on systemd's scale from 0 to 10.
func TestServiceExposure(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd is not installed")
	}
	for _, drop := range []string{"", "afpacket", "lldp", "netns", "tunnel", "flow-tables", "analyze"} {
		unit := filepath.Join(openDir(t), "waymark.service")
		text := readText(t, "../../deploy/systemd/waymark.service")
		switch drop {
		case "":
		case "analyze": // a unit of its own
			text = readText(t, "../../deploy/systemd/waymark-analyze.service")
		default:
			text = strings.Replace(text, "\n[Install]", readText(t, "../../deploy/systemd/"+drop+".conf")+"\n[Install]", 1)
		}
		if err := os.WriteFile(unit, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		// It writes below /run, which it gets one of its own for.
		r := execute(t, nil, "unshare", "--mount", "sh", "-c", `mount -n -t tmpfs tmpfs /run && exec "$@"`, "sh",
			"systemd-analyze", "security", "--offline=true", "--threshold=25", unit)
		if r.code != 0 {
			t.Errorf("drop-in %q: exit code %d: %s", drop, r.code, r.stdout[strings.LastIndex(r.stdout, "\n→")+1:])
		}
	}
}

// TestArchive: a package has all that the service needs, and the licences of what is linked.
func TestArchive(t *testing.T) {
	t.Parallel()
	dir := openDir(t)
	if out, err := installTo(dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, path := range []string{
		"usr/bin/waymark", "usr/bin/waymark-analyze", "usr/bin/waymark-kafka", "usr/lib/systemd/system/waymark.service", "usr/lib/systemd/system/waymark-analyze.service", "usr/lib/sysusers.d/waymark.conf",
		"etc/waymark/waymark.yaml", "usr/share/man/man1/waymark-run.1", "usr/share/bash-completion/completions/waymark",
	} {
		if !exists(filepath.Join(dir, path)) {
			t.Errorf("%s is missing", path)
		}
	}
	notice := readText(t, filepath.Join(dir, "usr/share/doc/waymark/NOTICE"))
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range info.Deps {
		// What is replaced by a directory is our own.
		if m.Replace == nil && !strings.Contains(notice, fmt.Sprintf("%s %s\n", m.Path, m.Version)) {
			t.Errorf("NOTICE has no licence of %s %s", m.Path, m.Version)
		}
	}
	// The sample is a configuration, and an operator's own is not overwritten.
	own := filepath.Join(dir, "etc/waymark/waymark.yaml")
	if r := waymark(t, "config", "check", own); r.code != 0 {
		t.Errorf("the sample configuration: %s", r.stderr)
	}
	if err := os.WriteFile(own, []byte("interfaces: [eth9]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := installTo(dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if got := readText(t, own); got != "interfaces: [eth9]\n" {
		t.Errorf("a second installation overwrote the configuration: %s", got)
	}
}
