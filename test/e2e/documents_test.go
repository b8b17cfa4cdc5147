package e2e

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestAlertRules: Prometheus accepts the alerts, and they use metrics that exist.
func TestAlertRules(t *testing.T) {
	t.Parallel()
	const file = "../../deploy/prometheus/alerts.yml"
	if _, err := exec.LookPath("promtool"); err != nil {
		t.Skip("promtool is not installed")
	}
	if r := execute(t, nil, "promtool", "check", "rules", file); r.code != 0 {
		t.Errorf("promtool: %s%s", r.stdout, r.stderr)
	}
	metrics := readText(t, "../../docs/reference/metrics.md")
	for _, path := range []string{file, "../../docs/how-to/prometheus.md", "../../docs/how-to/network-or-server.md"} {
		for _, name := range regexp.MustCompile(`\bwaymark_[a-z_]+\b`).FindAllString(readText(t, path), -1) {
			if !strings.Contains(metrics, "`"+strings.TrimSuffix(name, "_bucket")+"`") {
				t.Errorf("%s: no metric %s", path, name)
			}
		}
	}
}

// TestLinks: every link between the documents leads to a file.
func TestLinks(t *testing.T) {
	t.Parallel()
	link := regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
	var pages []string
	for _, dir := range []string{"../../docs", "../../bpf"} {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if strings.HasSuffix(path, ".md") {
				pages = append(pages, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	top, err := filepath.Glob("../../*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(pages, top...) {
		for _, m := range link.FindAllStringSubmatch(readText(t, page), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), m[1])); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
}

// TestDocumentedConfigurations: what the documents show as configuration is one.
func TestDocumentedConfigurations(t *testing.T) {
	t.Parallel()
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```")
	pages, err := filepath.Glob("../../docs/how-to/*.md")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, page := range append(pages, "../../README.md") {
		for _, m := range block.FindAllStringSubmatch(readText(t, page), -1) {
			if strings.Contains(m[1], "scrape_configs") || strings.Contains(m[1], "# akvorado") {
				continue // of other programs
			}
			file := filepath.Join(t.TempDir(), "waymark.yaml")
			if err := os.WriteFile(file, []byte(m[1]), 0o644); err != nil {
				t.Fatal(err)
			}
			if r := waymark(t, "config", "check", file); r.code != 0 {
				t.Errorf("%s: %s\n%s", page, r.stderr, m[1])
			}
			checked++
		}
	}
	if checked < 5 {
		t.Errorf("%d configurations found", checked)
	}
}
