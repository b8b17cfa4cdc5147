package disk

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/store"
)

const (
	tmpSuffix     = ".tmp"
	segmentSuffix = ".parquet"
	sumSuffix     = ".sum"
)

// segment is a file of records, which is never changed.
type segment struct {
	path        string
	first, last uint64 // intervals
	heads       []store.Head
	oldest      time.Time // earliest begin of an interval
	groups      []groupMeta
	rows        int
	bytes       int64 // with the checksums
	aged        bool

	mu      sync.Mutex
	uses    int
	gone    bool // it is removed once nobody reads it
	damaged string
}

// segmentName names the intervals from first to last. Names sort by number.
func segmentName(dir string, first, last uint64, aged bool) string {
	name := fmt.Sprintf("flows-%020d-%020d", first, last)
	if aged {
		name += "-aged"
	}
	return filepath.Join(dir, name+segmentSuffix)
}

// lastOf is the last interval that the name of a file has; 0: none.
func lastOf(path string) (last uint64) {
	var first uint64
	if _, err := fmt.Sscanf(filepath.Base(path), "flows-%d-%d", &first, &last); err != nil {
		return 0
	}
	return last
}

func sumPath(path string) string { return strings.TrimSuffix(path, segmentSuffix) + sumSuffix }

// openSegment reads what is known of a file without its records.
func openSegment(path string) (*segment, error) {
	file, checked, err := openParquet(path)
	if err != nil {
		return nil, err
	}
	defer checked.Close()
	meta := func(key string) string { v, _ := file.Lookup(key); return v }
	if v := meta(metaFormat); v != formatVersion {
		return nil, fmt.Errorf("%s has format %q, this Waymark reads %s: use a later version, or remove the file", path, v, formatVersion)
	}
	s := &segment{path: path, aged: meta(metaAged) != "", bytes: checked.size + int64(len(checked.sums))}
	if err := json.Unmarshal([]byte(meta(metaGroups)), &s.groups); err != nil {
		return nil, &DamagedError{path, err.Error()}
	}
	if s.heads, err = decodeHeads(meta(metaIntervals)); err != nil {
		return nil, &DamagedError{path, err.Error()}
	}
	if len(s.heads) == 0 || len(s.groups) != len(file.RowGroups()) {
		return nil, &DamagedError{path, "it has no intervals, or other row groups than it says"}
	}
	s.first, s.last = s.heads[0].Sequence, s.heads[len(s.heads)-1].Sequence
	if s.aged { // one interval stands for all
		if s.first, err = strconv.ParseUint(meta(metaAged), 10, 64); err != nil {
			return nil, &DamagedError{path, err.Error()}
		}
	}
	for _, g := range s.groups {
		s.rows += g.Rows
	}
	s.oldest = oldestOf(s.heads)
	return s, nil
}

// oldestOf is the earliest begin of intervals, whose order is that of their numbers: the clock may have stepped back.
func oldestOf(heads []store.Head) time.Time {
	return slices.MinFunc(heads, func(a, b store.Head) int { return a.From.Compare(b.From) }).From
}

// readBytes is how much of a column is read at once, from blocks that are kept.
const readBytes = 16 << 10

// openParquet opens a file, and verifies what it reads.
func openParquet(path string) (*parquet.File, *checkedFile, error) {
	checked, err := openChecked(path, sumPath(path))
	if err != nil {
		return nil, nil, err
	}
	file, err := parquet.OpenFile(checked, checked.size, parquet.SkipBloomFilters(true), parquet.SkipPageIndex(true), parquet.ReadBufferSize(readBytes))
	if err != nil {
		checked.Close()
		if damaged := (*DamagedError)(nil); !errors.As(err, &damaged) {
			err = &DamagedError{path, err.Error()}
		}
		return nil, nil, err
	}
	return file, checked, nil
}

// use keeps the file until release.
func (s *segment) use() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uses++
}

func (s *segment) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.uses--; s.uses == 0 && s.gone {
		s.unlink()
	}
}

// remove removes the file now, or once nobody reads it.
func (s *segment) remove() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone = true; s.uses == 0 {
		s.unlink()
	}
}

// unlink removes the records before their checksums: what is left of a crash has no records.
func (s *segment) unlink() {
	os.Remove(s.path)
	os.Remove(sumPath(s.path))
}

func (s *segment) began() time.Time { return s.heads[0].From }

func (s *segment) ended() time.Time { return s.heads[len(s.heads)-1].To }

// decodeHeads is the inverse of encodeHeads.
func decodeHeads(text string) (heads []store.Head, err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("its list of intervals is incomplete")
		}
	}()
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, err
	}
	uvarint := func() uint64 {
		v, n := binary.Uvarint(b)
		b = b[n:]
		return v
	}
	varint := func() int64 {
		v, n := binary.Varint(b)
		b = b[n:]
		return v
	}
	var wiring *flow.Wiring
	last := store.Head{}
	n := uvarint()
	if n > uint64(len(b)) {
		return nil, errors.New("its list of intervals is incomplete")
	}
	for range n {
		h := store.Head{Sequence: last.Sequence + uvarint()}
		h.From = time.Unix(0, nanosOf(last)+varint())
		h.To = h.From.Add(time.Duration(varint()))
		h.Summed, h.Rows = uvarint(), int(uvarint())
		changed := b[0] != 0
		if b = b[1:]; changed {
			size := uvarint()
			if wiring, err = store.DecodeWiring(b[:size]); err != nil {
				return nil, err
			}
			b = b[size:]
		}
		h.Wiring = wiring
		heads = append(heads, h)
		last = h
	}
	return heads, nil
}
