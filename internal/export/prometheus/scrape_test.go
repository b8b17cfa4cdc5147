package prometheus_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/export/prometheus"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/internal/stage/list"
	"github.com/waymark-net/waymark/test/await"
)

// Debian's Prometheus scrapes the agent's page, and queries answer. Both live in
// a network namespace of their own.
func TestRealPrometheus(t *testing.T) {
	binary, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("prometheus is not installed: apt-get install prometheus")
	}
	ns := labtest.UpHost(t)
	s := prometheus.New(prometheus.Config{Listen: "127.0.0.1:9474"}, status, list.Metrics(), slog.New(slog.DiscardHandler))
	if err := ns.Do(s.Listen); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()

	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	text := "global: {scrape_interval: 200ms, scrape_timeout: 200ms}\nscrape_configs:\n- job_name: waymark\n  static_configs: [{targets: ['127.0.0.1:9474']}]\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	cmd := exec.Command(binary, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address=127.0.0.1:9090", "--log.level=warn")
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := ns.Do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cmd.Process.Signal(unix.SIGTERM)
		cmd.Wait()
		if t.Failed() {
			t.Logf("prometheus said: %s", said.String())
		}
	}()

	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(_ context.Context, network, address string) (conn net.Conn, err error) {
			err = ns.Do(func() error {
				conn, err = net.DialTimeout(network, address, time.Second)
				return err
			})
			return conn, err
		},
	}}
	for _, tt := range []struct{ query, want string }{
		{`up{job="waymark"}`, "1"},
		{`sum(waymark_packets_total)`, "101"},
		{`waymark_coverage_ratio{interface="eth0",direction="egress"}`, "0.875"},
		{`waymark_exporter_lost_records_total{exporter="ipfix",reason="refused"}`, "12"},
		{`count(waymark_hook_attached == 1)`, "3"},
		{`waymark_program_run_seconds_total{program="flow_ingress"} / waymark_program_runs_total * 1e9`, "25"},
	} {
		await.Success(t, func() error { return query(client, tt.query, tt.want) })
	}
}

// query wants one sample with a value.
func query(client *http.Client, promql, want string) error {
	answer, err := client.Get("http://127.0.0.1:9090/api/v1/query?query=" + url.QueryEscape(promql))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	var body struct {
		Error string
		Data  struct {
			Result []struct{ Value [2]any }
		}
	}
	if err := json.NewDecoder(answer.Body).Decode(&body); err != nil {
		return err
	}
	if r := body.Data.Result; len(r) != 1 || !strings.HasPrefix(fmt.Sprint(r[0].Value[1]), want) {
		return fmt.Errorf("%s: %+v, want %s", promql, body, want)
	}
	return nil
}
