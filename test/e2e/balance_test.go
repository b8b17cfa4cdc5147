package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	balance "github.com/waymark-net/waymark/internal/balance/service"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/test/await"
)

const balanced = "10.9.9.9"

// balancerLab is a client, a balancer, and a backend that serves as long as healthy says.
func balancerLab(t *testing.T, healthy *atomic.Bool) (client, lb, backend *lab.Host) {
	t.Helper()
	l := labtest.New(t, lab.Config{Topology: "chain"})
	client, lb, backend = l.Host("alpha"), l.Host("athos"), l.Host("porthos")
	for _, h := range l.Hosts() {
		for _, i := range h.Interfaces {
			if err := errors.Join(h.SetFeatures(i.Name, true, "rx-gro"), h.SetFeatures(i.Name, false, "tx-checksum-ip-generic")); err != nil {
				t.Fatal(err)
			}
		}
	}
	must(t, backend, "ip", "addr", "add", balanced+"/32", "dev", "lo")
	must(t, client, "ip", "route", "add", balanced, "via", lb.Addr4().String())
	must(t, lb, "ip", "route", "add", balanced, "via", client.Addr4().String()) // as if a router were there
	var listener net.Listener
	if err := backend.Do(func() (err error) {
		listener, err = net.Listen("tcp", balanced+":80")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" && !healthy.Load() {
			http.Error(w, "not now", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, "served")
	})}
	go server.Serve(listener) //nolint:errcheck // ends with the listener
	t.Cleanup(func() { server.Close() })
	return client, lb, backend
}

// TestBalance: a real client is served by the backend as long as checks find it healthy and it does not drain; status shows
// that in all formats, and changes take effect at a reload.
func TestBalance(t *testing.T) {
	t.Parallel()
	var healthy atomic.Bool
	healthy.Store(true)
	client, lb, backend := balancerLab(t, &healthy)
	config := func(more string) string {
		return quick + fmt.Sprintf(`interfaces: [LINKS]
balance:
  interfaces: [to-alpha, to-porthos]
  services:
    - name: web
      address: %s
      port: 80
      forwarding: l2
      none_healthy: reset
      health: {type: http, path: /healthz, interval: 100ms, timeout: 10s, rise: 2, fall: 2}
      backends: [{address: %s%s}]
`, balanced, backend.Addr4(), more)
	}
	a := start(t, setup{host: lb, config: config("")})
	status := func() (s balance.Status) {
		t.Helper()
		if err := json.Unmarshal([]byte(must(t, nil, program, "balance", "status", "-o", "json", "--socket", a.socket)), &s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	state := func() string { return status().Services[0].Backends[0].State }
	curl := func() (string, error) {
		return client.Run(t.Context(), "curl", "-sS", "--max-time", "20", "http://"+balanced+"/")
	}
	refused := func() bool {
		_, err := curl()
		return err != nil && strings.Contains(err.Error(), "(7)") // curl: no connection
	}
	if out, err := curl(); err != nil || out != "served" {
		t.Fatalf("%s %v\n%+v", out, err, status())
	}
	for _, format := range []string{"table", "jsonl", "csv"} {
		if got := must(t, nil, program, "balance", "status", "-o", format, "--socket", a.socket); !strings.Contains(got, "web") {
			t.Errorf("%s: %s", format, got)
		}
	}
	if got := must(t, nil, program, "status", "--socket", a.socket); !strings.Contains(got, "Balancer: ") {
		t.Error(got)
	}
	healthy.Store(false)
	await.True(t, "the backend is down", func() bool { return state() == "down" && refused() })
	if b := status().Services[0].Backends[0]; !strings.Contains(b.Reason, "503") || b.Changes != 1 || b.Share != 0 {
		t.Errorf("%+v", b)
	}
	healthy.Store(true)
	await.True(t, "the backend is up again", func() bool { return state() == "up" })
	if out, err := curl(); err != nil || out != "served" {
		t.Errorf("%s %v", out, err)
	}
	a.reload(t, config(", drain: true"), "configuration reloaded")
	await.True(t, "the backend drains", func() bool { return state() == "draining" && refused() })
}

// TestBalanceMistakes: what is impossible is named with its line and a remedy, before anything is attached.
func TestBalanceMistakes(t *testing.T) {
	t.Parallel()
	_, alpha, _ := newLab(t)
	file := filepath.Join(t.TempDir(), "waymark.yaml")
	for _, c := range []struct{ config, want string }{
		{"{address: 10.9.9.9, port: 80, backends: []}", "the service has no backends"},
		{"{address: 10.9.9.9, backends: [{address: 10.0.0.1}]}", "the service has no port"},
		{"{address: 10.9.9.9, port: 80, forwarding: l2, backends: [{address: \"2001:db8::1\"}]}", "write forwarding: ipip"},
		{"{address: 10.9.9.9, port: 80, backends: [{address: 10.0.0.1}]}, {address: 10.9.9.9, port: 80, backends: [{address: 10.0.0.2}]}", "balance.services[0]"},
		{"{address: 10.9.9.9, port: 80, protocol: udp, health: {type: http}, backends: [{address: 10.0.0.1}]}", "does not answer checks of type http"},
		{"{address: 10.9.9.9, port: 443, protocol: quic, quic: {id_length: 1}, backends: [{address: 10.0.0.1}]}", "two hexadecimal digits"},
	} {
		if err := os.WriteFile(file, []byte("interfaces: [to-*]\nbalance:\n  interfaces: [to-beta]\n  services: ["+c.config+"]\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		r := waymark(t, "config", "check", file)
		if r.code == 0 || !strings.Contains(r.stdout+r.stderr, c.want) || !strings.Contains(r.stdout+r.stderr, "waymark.yaml:4") {
			t.Errorf("%s: %+v", c.config, r)
		}
	}
	// What only the host shows: an address of its own.
	own := fmt.Sprintf("interfaces: [to-*]\nbalance:\n  interfaces: [to-beta]\n  services: [{address: %s, port: 80, backends: [{address: 10.0.0.1}]}]\n", alpha.Addr4())
	if err := os.WriteFile(file, []byte(own+"api:\n  socket: "+filepath.Join(t.TempDir(), "s")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := alpha.Run(t.Context(), program, "run", "--config", file); err == nil || !strings.Contains(out+err.Error(), "is an address of this host") {
		t.Errorf("%s %v", out, err)
	}
}
