package subscriptions

import "fmt"

// Code names a way an operation can fail. The text is part of the HTTP
// interface (PROTOCOL.md 6 and 7); what status it becomes is the frontend's
// business. Errors of the store come as *fdblayer.Error.
type Code string

// The codes of this package. They are those of the protocol's reference server.
const (
	CodeInvalidRequest Code = "INVALID_REQUEST"
	CodeURLRejected    Code = "WEBHOOK_URL_REJECTED"
	CodeTokenInvalid   Code = "TOKEN_INVALID"
	CodeTokenExpired   Code = "TOKEN_EXPIRED"
	CodeNotFound       Code = "SUBSCRIPTION_NOT_FOUND"
	CodeExists         Code = "SUBSCRIPTION_ALREADY_EXISTS"
	CodeFenced         Code = "FENCED"
	CodeAlreadyClaimed Code = "ALREADY_CLAIMED"
	CodeNoPendingWork  Code = "NO_PENDING_WORK"
	CodeInvalidOffset  Code = "INVALID_OFFSET"
)

// Error is what operations of this package refuse a request with.
type Error struct {
	Code Code
	// Detail is one line for a person.
	Detail string
	// CurrentHolder and Generation go with CodeAlreadyClaimed.
	CurrentHolder string
	Generation    uint64
}

func (e *Error) Error() string { return string(e.Code) + ": " + e.Detail }

func errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Detail: fmt.Sprintf(format, args...)}
}
