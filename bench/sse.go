package bench

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// maxEvent bounds one event's data.
const maxEvent = 64 << 20

var errEventTooLong = errors.New("an event is too long")

// eventReader reads Server-Sent Events: the fields event and data, which are
// all the protocol uses.
type eventReader struct {
	br   *bufio.Reader
	name []byte
	data []byte
	// long collects a line that is longer than br's buffer.
	long []byte
}

func newEventReader(body io.Reader) *eventReader {
	return &eventReader{br: bufio.NewReaderSize(body, connBuffer)}
}

// next returns the next event that has a name or data; both are valid until the
// following call. An event that the body's end cuts off is dropped, as the
// event-stream rules say.
func (e *eventReader) next() (name, data []byte, err error) {
	e.name, e.data = e.name[:0], e.data[:0]
	lines := 0
	for {
		line, err := e.line()
		if err != nil {
			return nil, nil, err
		}
		if len(line) == 0 {
			if lines == 0 && len(e.name) == 0 {
				continue
			}
			return e.name, e.data, nil
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch {
		case len(field) == 0: // a comment
		case string(field) == "event":
			e.name = append(e.name[:0], value...)
		case string(field) == "data":
			if lines++; lines > 1 {
				e.data = append(e.data, '\n')
			}
			if len(e.data)+len(value) > maxEvent {
				return nil, nil, errEventTooLong
			}
			e.data = append(e.data, value...)
		case string(field) == "id", string(field) == "retry":
		default:
			return nil, nil, fmt.Errorf("unknown event-stream field %.40q", field)
		}
	}
}

// line returns the next line without its end, which is LF or CR LF.
func (e *eventReader) line() ([]byte, error) {
	line, err := e.br.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		e.long = append(e.long[:0], line...)
		for errors.Is(err, bufio.ErrBufferFull) {
			if len(e.long) > maxEvent {
				return nil, errEventTooLong
			}
			line, err = e.br.ReadSlice('\n')
			e.long = append(e.long, line...)
		}
		line = e.long
	}
	if err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(line[:len(line)-1], []byte("\r")), nil
}
