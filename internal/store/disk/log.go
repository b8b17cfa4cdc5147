package disk

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/waymark-net/waymark/internal/store"
)

// The log takes each interval as one record: its length, its checksum, its bytes. A record whose
// checksum is wrong is where an agent ended in the middle of a write: it and what follows are cut
// off.

// logMagic begins a log file.
const logMagic = "WMLOG01\n"

// maxRecord is more than the bytes of any interval.
const maxRecord = 1 << 30

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// log is the file that intervals are written to.
type log struct {
	path    string
	file    *os.File
	size    int64 // of what is written whole
	encoder store.Encoder
	heads   []store.Head
	ids     []Identity // of the intervals that have one
	rows    int
	with    map[string]bool // inner objects that some record has
	synced  time.Time
	dirty   bool
	refused int // times that no file could be made of it
	scratch []byte
}

// logName is that of the log that begins with an interval. Names sort by number.
func logName(dir string, first uint64) string {
	return filepath.Join(dir, fmt.Sprintf("log-%020d.wal", first))
}

// damagedName is one that no file has, for a log that cannot be read.
func damagedName(path string) string {
	name := path + ".damaged"
	for n := 2; ; n++ {
		if _, err := os.Lstat(name); err != nil {
			return name
		}
		name = fmt.Sprintf("%s.damaged%d", path, n)
	}
}

func createLog(dir string, first uint64) (*log, error) {
	l := &log{path: logName(dir, first), with: map[string]bool{}}
	var err error
	if l.file, err = os.OpenFile(l.path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, fileMode); err != nil {
		return nil, err
	}
	if _, err := l.file.WriteAt([]byte(logMagic), 0); err != nil {
		return nil, errors.Join(err, l.remove())
	}
	l.size = int64(len(logMagic))
	return l, syncDir(dir)
}

// openLog goes on with a log that was left, after what was torn is cut off; torn is how many
// bytes that were.
func openLog(path string) (l *log, torn int64, err error) {
	l = &log{path: path, with: map[string]bool{}}
	if l.file, err = os.OpenFile(path, os.O_RDWR, 0); err != nil {
		return nil, 0, err
	}
	info, err := l.file.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, l.file.Close())
	}
	if info.Size() < int64(len(logMagic)) { // an agent was killed before it wrote anything
		return l, info.Size(), nil
	}
	l.size, err = readLog(l.file, func(d *store.Decoder, b []byte) error {
		e, err := d.Decode(b)
		if err == nil {
			l.note(&e)
			if id, ok := trailer(b); ok {
				l.ids = append(l.ids, id)
			}
		}
		return err
	})
	if err != nil {
		return nil, 0, errors.Join(err, l.file.Close())
	}
	if torn = info.Size() - l.size; torn > 0 {
		err = l.file.Truncate(l.size)
	}
	return l, torn, err
}

// readLog calls each with the bytes of every interval that is whole, and returns where they end.
func readLog(file io.ReaderAt, each func(d *store.Decoder, b []byte) error) (end int64, err error) {
	r := bufio.NewReaderSize(io.NewSectionReader(file, 0, 1<<62), 1<<16)
	magic := make([]byte, len(logMagic))
	if _, err := io.ReadFull(r, magic); err != nil || string(magic) != logMagic {
		return 0, errNoLog
	}
	end = int64(len(logMagic))
	var decoder store.Decoder
	var head [8]byte
	var payload []byte
	for {
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return end, nil
		}
		n, sum := binary.LittleEndian.Uint32(head[:]), binary.LittleEndian.Uint32(head[4:])
		if n == 0 || n > maxRecord {
			return end, nil
		}
		// A length that is wrong must not cost memory.
		if last, _ := file.ReadAt(head[:1], end+int64(len(head))+int64(n)-1); last == 0 {
			return end, nil
		}
		payload = slices.Grow(payload[:0], int(n))[:n]
		if _, err := io.ReadFull(r, payload); err != nil {
			return end, nil
		}
		if crc32.Checksum(payload, castagnoli) != sum {
			return end, nil
		}
		if err := each(&decoder, payload); err != nil {
			return end, err
		}
		end += int64(len(head)) + int64(n)
	}
}

var errNoLog = errors.New("it is no log of Waymark")

// append writes an interval, and its identity; nil: it has none. After an error nothing of it is left.
func (l *log) append(e *store.Ended, id *Identity) error {
	encoder := l.encoder
	b := encoder.Append(append(l.scratch[:0], make([]byte, 8)...), e)
	if id != nil {
		b = append(id.append(b), trailerMagic...)
	}
	binary.LittleEndian.PutUint32(b, uint32(len(b)-8))
	binary.LittleEndian.PutUint32(b[4:], crc32.Checksum(b[8:], castagnoli))
	if cap(b) < 1<<20 {
		l.scratch = b
	}
	if _, err := l.file.WriteAt(b, l.size); err != nil {
		return errors.Join(err, l.file.Truncate(l.size))
	}
	l.encoder = encoder
	l.size += int64(len(b))
	l.note(e)
	l.dirty = true
	return nil
}

func (l *log) note(e *store.Ended) {
	l.heads = append(l.heads, e.Head())
	l.rows += e.Len()
	e.Objects(l.with)
}

// sync has the disk keep what was written, but not more often than every so often.
func (l *log) sync(now time.Time, every time.Duration) error {
	if age := now.Sub(l.synced); !l.dirty || age >= 0 && age < every {
		return nil
	}
	l.synced, l.dirty = now, false
	return l.file.Sync()
}

func (l *log) remove() error { return errors.Join(l.file.Close(), os.Remove(l.path)) }

// syncDir has the disk keep the names of a directory.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
