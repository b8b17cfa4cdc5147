package pipe

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

// FuzzRead: no bytes crash the reader, or make it take more memory than there are; what Write wrote is read.
func FuzzRead(f *testing.F) {
	var b bytes.Buffer
	if err := errors.Join(WriteJSON(&b, Answered, Answer{Run: 1, Number: 2, Error: "x"}), Write(&b, Interval, nil)); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte{Interval, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		from, again := bytes.NewReader(b), &bytes.Buffer{}
		for {
			kind, message, err := Read(from)
			if err != nil {
				break
			}
			if err := Write(again, kind, message); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.HasPrefix(b, again.Bytes()) {
			t.Errorf("%x, want %x", again.Bytes(), b)
		}
	})
}

// TestCut: a pipe that ends within a message is not one that was closed.
func TestCut(t *testing.T) {
	var b bytes.Buffer
	if err := Write(&b, Configure, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	for n := range b.Len() {
		_, _, err := Read(bytes.NewReader(b.Bytes()[:n]))
		if err == nil || (n == 0) != errors.Is(err, io.EOF) && n == 0 || n > 0 && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}
