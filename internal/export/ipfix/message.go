package ipfix

import "time"

const (
	version      = 10
	headerLen    = 16
	setHeaderLen = 4
)

// message is an IPFIX message being filled (RFC 7011 section 3.1).
type message struct {
	buf   []byte
	limit int    // bytes
	kind  kind   // of what is in it
	set   int    // where the open set starts, 0: none
	setID uint16 // of the open set

	dataRecords uint32 // what the sequence number counts: flows and options
	flowRecords int    // IPFIX records of flows
	flows       int    // flow.Records in them: two in one of a conversation
}

// kind is what a message holds. Templates are in messages of their own, and so is
// the type information (RFC 5610) with its template: there are decoders that drop
// the whole message with a record they do not understand, or that read the
// records of a message before its templates.
type kind uint8

const (
	kindData kind = iota
	kindTemplates
	kindTypes
)

func (m *message) reset() {
	*m = message{buf: append(m.buf[:0], make([]byte, headerLen)...), limit: m.limit}
}

func (m *message) empty() bool { return len(m.buf) <= headerLen }

// fits reports whether a record of n bytes can be added to a set.
func (m *message) fits(k kind, id uint16, n int) bool {
	if m.kind != k && !m.empty() {
		return false
	}
	if m.set == 0 || m.setID != id {
		n += setHeaderLen
	}
	return len(m.buf)+n <= m.limit
}

// open starts a set unless the open one has the same id.
func (m *message) open(k kind, id uint16) {
	m.kind = k
	if m.set != 0 && m.setID == id {
		return
	}
	m.close()
	m.set, m.setID = len(m.buf), id
	m.buf = be.AppendUint16(m.buf, id)
	m.buf = be.AppendUint16(m.buf, 0)
}

func (m *message) close() {
	if m.set != 0 {
		be.PutUint16(m.buf[m.set+2:], uint16(len(m.buf)-m.set))
		m.set = 0
	}
}

// finish completes the message for sending.
func (m *message) finish(at time.Time, sequence, domain uint32) []byte {
	m.close()
	be.PutUint16(m.buf[0:], version)
	be.PutUint16(m.buf[2:], uint16(len(m.buf)))
	be.PutUint32(m.buf[4:], uint32(at.Unix()))
	be.PutUint32(m.buf[8:], sequence)
	be.PutUint32(m.buf[12:], domain)
	return m.buf
}
