package timeline

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// file has the versions on disk: gzip members one after the other, so that zcat reads it. What an agent that was killed had not
// written in full is cut off.
type file struct {
	path   string
	size   int64 // of the file
	most   int64 // beyond which it is written again, with what is in memory
	failed string
}

// Keep reads the versions of a file, and keeps further ones in it. torn is how many bytes at its end were no version.
func (t *Timeline) Keep(path string) (torn int, err error) {
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("topology: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	whole := t.read(data)
	f := &file{path: path, size: int64(whole), most: 2 * int64(t.size)}
	if torn = len(data) - whole; torn > 0 {
		if err := os.Truncate(path, int64(whole)); err != nil {
			return torn, fmt.Errorf("topology: %w", err)
		}
	}
	t.file = f
	return torn, nil
}

// read takes in what a file holds; whole is the length of all versions in it.
func (t *Timeline) read(data []byte) (whole int) {
	for whole < len(data) {
		r := bytes.NewReader(data[whole:])
		z, err := gzip.NewReader(r)
		if err != nil {
			return whole
		}
		z.Multistream(false)
		text, err := io.ReadAll(io.LimitReader(z, maxVersion))
		var g Graph
		if err != nil || json.Unmarshal(text, &g) != nil {
			return whole
		}
		end := len(data) - r.Len()
		if n := len(t.versions); n == 0 || g.Since.After(t.versions[n-1].since) {
			t.keep(version{g.Since, bytes.Clone(data[whole:end])})
			g.Since, g.Hidden = time.Time{}, 0
			t.last, _ = json.Marshal(g) // it was read from JSON
		}
		whole = end
	}
	return whole
}

// append writes a version behind the others, or all again where the file is too large. An error is kept for the status:
// versions in memory go on.
func (f *file) append(data []byte, all []version) (err error) {
	defer func() {
		f.failed = ""
		if err != nil {
			f.failed = err.Error()
		}
	}()
	if f.size+int64(len(data)) > f.most {
		return f.rewrite(all)
	}
	out, err := os.OpenFile(f.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
	if err != nil {
		return fmt.Errorf("topology: %w", err)
	}
	n, err := out.Write(data)
	if err != nil { // no half version, behind which none could be read
		err = errors.Join(err, out.Truncate(f.size))
		n = 0
	}
	f.size += int64(n)
	return errors.Join(err, out.Close())
}

func (f *file) rewrite(all []version) error {
	var b bytes.Buffer
	for _, v := range all {
		b.Write(v.data)
	}
	next := filepath.Join(filepath.Dir(f.path), "."+filepath.Base(f.path)+".next")
	if err := os.WriteFile(next, b.Bytes(), 0o640); err != nil {
		return fmt.Errorf("topology: %w", err)
	}
	if err := os.Rename(next, f.path); err != nil {
		return fmt.Errorf("topology: %w", err)
	}
	f.size = int64(b.Len())
	return nil
}
