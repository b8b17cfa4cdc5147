package e2e

import (
	"encoding/json"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/analyze/device/devicetest"
	"github.com/waymark-net/waymark/test/await"
)

// TestReceive: a router without an agent sends NetFlow to an analyzer, and its flows are asked for as those of a host.
func TestReceive(t *testing.T) {
	t.Parallel()
	_, alpha, _ := newLab(t)
	dir := openDir(t)
	socket, config := filepath.Join(dir, "analyze.sock"), filepath.Join(dir, "analyze.yaml")
	text := "analyze:\n  listen: '127.0.0.1:8476'\n  path: " + filepath.Join(dir, "data") + "\n  scan_interval: 1s\n  receive: [{listen: '127.0.0.1:2055'}]\n"
	writeText(t, config, text)
	wants(t, waymark(t, "config", "check", config), 2, "analyze.yaml:5:", "nobody may send there")
	writeText(t, config, text+"  devices: [{address: 127.0.0.1, name: core1}]\napi: {socket: "+socket+"}\n")
	must(t, alpha, "ip", "link", "set", "lo", "up")
	analyzer := spawn(t, alpha, command(program, "analyze", "--config", config))
	await.Success(t, func() error {
		if r := waymark(t, "status", "--socket", socket); r.code != 0 {
			return notYet("%s", r.stderr)
		}
		return nil
	})
	datagram := devicetest.At(devicetest.NetFlow5(1, time.Hour, 1<<14|10, devicetest.Record5(5, 500, time.Hour, time.Hour)), time.Now())
	if err := alpha.Do(func() error {
		c, err := net.Dial("udp", "127.0.0.1:2055")
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write(datagram)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	await.Success(t, func() error {
		r := waymark(t, "flows", "--socket", socket, "--by", "host,iface,dport", "-o", "json")
		var answer struct {
			Rows []struct {
				Host, Iface string
				Dport       uint16
				Packets     uint64
			}
		}
		if err := json.Unmarshal([]byte(r.stdout), &answer); err != nil || len(answer.Rows) != 1 {
			return notYet("%v: %s %s", err, r.stdout, r.stderr)
		}
		if row := answer.Rows[0]; row.Host != "core1" || row.Iface != "if3" || row.Dport != 443 || row.Packets != 50 {
			t.Fatalf("%+v", row)
		}
		return nil
	})
	wants(t, waymark(t, "status", "--socket", socket), 0)
	analyzer.kill()
}
