// Package release tests what users download: that archives are complete and reproducible, and what a clone
// without compiled programs answers. It runs scripts/release, on the tree after `make build`.
package release

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const version = "0.0.0-test"

// release runs scripts/release under umask, and returns the folder that it filled.
func release(t *testing.T, umask string, env ...string) string {
	t.Helper()
	out := t.TempDir()
	cmd := exec.Command("sh", "-c", `umask "$1" && exec ../../scripts/release "$2" "$3" amd64`, "sh", umask, version, out)
	cmd.Env = append(os.Environ(), env...)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("scripts/release: %v\n%s", err, text)
	}
	return out
}

// The same commit gives the same bytes, whoever builds it, where and when.
func TestReproducible(t *testing.T) {
	first := release(t, "022")
	second := release(t, "077", "TZ=Asia/Tokyo", "LC_ALL=C", "TMPDIR="+t.TempDir())
	for _, name := range []string{archive, sbom("waymark"), sbom("waymark-analyze"), sbom("waymark-kafka"), "SHA256SUMS"} {
		a, b := read(t, first, name), read(t, second, name)
		if !bytes.Equal(a, b) {
			t.Errorf("%s differs: %d and %d bytes", name, len(a), len(b))
		}
	}
	checkSums(t, first)
	programs := checkArchive(t, first)
	checkMaterials(t, first, programs, "waymark")
	checkMaterials(t, first, programs, "waymark-analyze")
	checkMaterials(t, first, programs, "waymark-kafka")
}

const (
	platform = "-" + version + "-linux-amd64"
	stem     = "waymark" + platform
	archive  = stem + ".tar.gz"
)

// sbom is the bill of materials of a program.
func sbom(program string) string { return program + platform + ".cdx.json" }

func read(t *testing.T, dir, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func checkSums(t *testing.T, dir string) {
	cmd := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	cmd.Dir = dir
	if text, err := cmd.CombinedOutput(); err != nil || strings.Count(string(text), ": OK") != 4 {
		t.Errorf("%v\n%s", err, text)
	}
}

// checkArchive unpacks the archive and returns the folder of the programs in it.
func checkArchive(t *testing.T, dir string) string {
	root := t.TempDir()
	if text, err := exec.Command("tar", "-C", root, "-xzf", filepath.Join(dir, archive)).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, name := range []string{
		"etc/waymark/waymark.yaml", "usr/lib/systemd/system/waymark.service", "usr/lib/sysusers.d/waymark.conf",
		"usr/share/man/man1/waymark.1", "usr/share/doc/waymark/NOTICE", "usr/share/doc/waymark/LICENSE",
		"usr/share/bash-completion/completions/waymark",
	} {
		if info, err := os.Stat(filepath.Join(root, stem, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	programs := filepath.Join(root, stem, "usr/bin")
	text, err := exec.Command(filepath.Join(programs, "waymark"), "--version").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(text), "waymark "+version+"\n") {
		t.Errorf("%v\n%s", err, text)
	}
	// It runs the analyzer next to it.
	if text, err := exec.Command(filepath.Join(programs, "waymark"), "analyze", "--help").CombinedOutput(); err != nil || !strings.Contains(string(text), "waymark analyze token") {
		t.Errorf("%v\n%s", err, text)
	}
	return programs
}

// checkMaterials compares the bill of materials with what the linker recorded, and with the console's packages in NOTICE.
func checkMaterials(t *testing.T, dir, programs, name string) {
	program := filepath.Join(programs, name)
	var bom struct {
		BOMFormat string
		Metadata  struct {
			Component struct {
				Version string
				Hashes  []struct{ Content string }
			}
		}
		Components []struct {
			PURL   string
			Hashes []struct{ Content string }
		}
	}
	if err := json.Unmarshal(read(t, dir, sbom(name)), &bom); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	self := bom.Metadata.Component
	if bom.BOMFormat != "CycloneDX" || self.Version != version || len(self.Hashes) != 1 || self.Hashes[0].Content != hex.EncodeToString(sum[:]) {
		t.Errorf("%+v", bom.Metadata)
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go")}
	for _, m := range info.Deps {
		if m.Replace != nil { // by a directory of this module
			continue
		}
		want = append(want, "pkg:golang/"+m.Path+"@"+m.Version)
	}
	console := consolePackages(t)
	if !slices.ContainsFunc(console, func(url string) bool { return strings.HasPrefix(url, "pkg:npm/preact@") }) {
		t.Errorf("the console is made of %v", console)
	}
	want = append(want, console...)
	var got []string
	for i, c := range bom.Components {
		got = append(got, c.PURL)
		if i > 0 && len(c.Hashes) != 1 { // the standard library has none
			t.Errorf("%s has the hashes %v", c.PURL, c.Hashes)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the bill lists\n%q\nand the program contains\n%q", got, want)
	}
}

// consolePackages are those of npm, by NOTICE.
func consolePackages(t *testing.T) (urls []string) {
	for line := range strings.Lines(string(read(t, "../../build", "NOTICE"))) {
		if of, ok := strings.CutSuffix(strings.TrimSpace(line), " (console)"); ok {
			name, version, _ := strings.Cut(of, " ")
			urls = append(urls, "pkg:npm/"+strings.Replace(name, "@", "%40", 1)+"@"+version)
		}
	}
	return urls
}

// In a fresh clone, and with go install, the go command says what to do before it compiles anything.
func TestBuildWithoutPrograms(t *testing.T) {
	clone := t.TempDir()
	copyTree := exec.Command("sh", "-c", `git -c safe.directory='*' ls-files -z | tar --null --ignore-failed-read -T - -cf - | tar -C "$1" -xf -`, "sh", clone)
	copyTree.Dir = "../.."
	if text, err := copyTree.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	build := exec.Command("go", "build", "-buildvcs=false", "-o", os.DevNull, "./cmd/waymark")
	build.Dir = clone
	text, err := build.CombinedOutput()
	if err == nil || !strings.Contains(string(text), "run-make-build_see-README: no matching files found") || strings.Contains(string(text), "undefined") {
		t.Errorf("%v\n%s", err, text)
	}
}
