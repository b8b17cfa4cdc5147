package disk

import (
	"errors"
	"io"
	"os"
)

// spool keeps the pages of a row group in a file without a name until the group is complete: in memory, they would take
// as much as the group takes on disk.
type spool struct {
	file   *os.File
	end    int64  // of what was written
	buffer []byte // the last of it, which the file does not have yet
	used   int    // buffers that columns have
}

// spoolBuffer is how much is written at once.
const spoolBuffer = 64 << 10

// newSpool makes a file that is gone when it is closed.
func newSpool(path string) (*spool, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, fileMode)
	if err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &spool{file: file, buffer: make([]byte, 0, spoolBuffer)}, nil
}

// GetBuffer implements parquet.BufferPool.
func (s *spool) GetBuffer() io.ReadWriteSeeker {
	s.used++
	return &spooled{spool: s}
}

// PutBuffer implements parquet.BufferPool.
func (s *spool) PutBuffer(io.ReadWriteSeeker) {
	if s.used--; s.used == 0 { // what comes is of the next row group
		s.end, s.buffer = 0, s.buffer[:0]
	}
}

func (s *spool) flush() error {
	_, err := s.file.WriteAt(s.buffer, s.end-int64(len(s.buffer)))
	s.buffer = s.buffer[:0]
	return err
}

func (s *spool) Close() error { return s.file.Close() }

// spooled are the pages of a column.
type spooled struct {
	spool *spool
	parts []extent // of the file
	next  int      // part that is read
	at    int64    // in it
}

// extent are bytes of a file.
type extent struct{ from, to int64 }

func (p *spooled) Write(b []byte) (int, error) {
	s := p.spool
	if len(s.buffer)+len(b) > spoolBuffer {
		if err := s.flush(); err != nil {
			return 0, err
		}
	}
	if n := len(p.parts); n > 0 && p.parts[n-1].to == s.end {
		p.parts[n-1].to += int64(len(b))
	} else {
		p.parts = append(p.parts, extent{s.end, s.end + int64(len(b))})
	}
	s.buffer = append(s.buffer, b...)
	s.end += int64(len(b))
	return len(b), nil
}

var errSeek = errors.New("pages are read from their beginning")

// Seek goes to the beginning, and nowhere else.
func (p *spooled) Seek(offset int64, whence int) (int64, error) {
	if offset != 0 || whence != io.SeekStart {
		return 0, errSeek
	}
	p.next, p.at = 0, 0
	return 0, nil
}

func (p *spooled) Read(b []byte) (int, error) {
	if err := p.spool.flush(); err != nil {
		return 0, err
	}
	for ; p.next < len(p.parts); p.next, p.at = p.next+1, 0 {
		from, to := p.parts[p.next].from+p.at, p.parts[p.next].to
		if from == to {
			continue
		}
		n, err := p.spool.file.ReadAt(b[:min(int64(len(b)), to-from)], from)
		p.at += int64(n)
		return n, err
	}
	return 0, io.EOF
}

// WriteTo is what io.Copy calls: with memory that all columns share.
func (p *spooled) WriteTo(w io.Writer) (int64, error) {
	if err := p.spool.flush(); err != nil {
		return 0, err
	}
	return io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{p}, p.spool.buffer[:spoolBuffer])
}
