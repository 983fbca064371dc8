package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	v1 "fairlead.dev/internal/console/v1"
)

// Client asks a console.
type Client struct {
	// URL of the console, "http://127.0.0.1:7080".
	URL  string
	HTTP *http.Client
}

// Status asks a plane's console for the plane's own status.
func (c Client) Status(ctx context.Context) (v1.Status, error) { return c.status(ctx, v1.StatusPath) }

// LeaderStatus asks a plane's console for the status of the plane that leads.
func (c Client) LeaderStatus(ctx context.Context) (v1.Status, error) {
	return c.status(ctx, v1.StatusPath+"?"+v1.OfLeader)
}

func (c Client) status(ctx context.Context, path string) (v1.Status, error) {
	body, err := c.Get(ctx, path)
	if err != nil {
		return v1.Status{}, err
	}
	var s struct {
		v1.Status
		Machine string `json:"machine"` // an agent's
	}
	err = json.Unmarshal(body, &s)
	switch {
	case s.Machine != "":
		return v1.Status{}, AgentError{URL: c.URL, Machine: s.Machine}
	case err != nil:
		return v1.Status{}, fmt.Errorf("read the status from %s: %w", c.URL, err)
	}
	return s.Status, nil
}

// Get returns the body at a path of the console. An answer that is not 200 is an
// error that carries the body's first line. Without an answer the error is a NoAnswerError.
func (c Client) Get(ctx context.Context, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(c.URL, "/")+path, nil)
	if err != nil {
		return nil, fmt.Errorf("ask the console at %s: %w", c.URL, err)
	}
	response, err := c.do(c.HTTP, request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	return c.read200(response, path)
}

func (c Client) do(by *http.Client, request *http.Request) (*http.Response, error) {
	response, err := by.Do(request)
	if err != nil {
		if failed, is := errors.AsType[*url.Error](err); is {
			err = failed.Err // its address says again where we asked
		}
		return nil, NoAnswerError{URL: c.URL, Err: err}
	}
	return response, nil
}

// read200 reads an answer, which is an error unless its status is 200.
func (c Client) read200(response *http.Response, path string) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(response.Body, v1.MaxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read %s%s: %w", c.URL, path, err)
	}
	if response.StatusCode != http.StatusOK {
		return body, c.refusal(path, response, body)
	}
	return body, nil
}

// refusal is the error of an answer that is not 200.
func (c Client) refusal(path string, response *http.Response, body []byte) error {
	line, _, _ := strings.Cut(strings.TrimSpace(string(body)), "\n")
	if response.StatusCode == http.StatusMisdirectedRequest {
		return standbyAnswer{line}
	}
	code := response.StatusCode
	return AnswerError{
		URL: c.URL + path, Status: response.Status, Line: line,
		none: code == http.StatusNotFound, refused: code == http.StatusUnauthorized || code == http.StatusForbidden, wrong: code == http.StatusBadRequest,
	}
}

// NoAnswerError says that a question got no answer, or was broken off before.
type NoAnswerError struct {
	URL string
	Err error
}

// Error implements error.
func (e NoAnswerError) Error() string { return "ask the console at " + e.URL + ": " + e.Err.Error() }

// Unwrap returns why there was no answer.
func (e NoAnswerError) Unwrap() error { return e.Err }

// AgentError says that the console of which a plane's status was asked is an agent's.
type AgentError struct{ URL, Machine string }

// Error implements error.
func (e AgentError) Error() string {
	return e.URL + " is the console of the agent of machine " + e.Machine + ", not of a plane"
}

// standbyAnswer is what a Standby says, read from its console.
type standbyAnswer struct{ line string }

// Error implements error.
func (a standbyAnswer) Error() string { return a.line }

// As makes a Standby of it, of which nothing but the text is known.
func (a standbyAnswer) As(target any) bool {
	_, is := target.(*Standby)
	return is
}

// AnswerError is an answer of a console that is no success: the console is there. It is
// ErrNone where there is nothing of what was asked for.
type AnswerError struct {
	URL, Status string
	Line        string // the first of the answer
	none        bool
	refused     bool
	wrong       bool
}

// Error implements error.
func (e AnswerError) Error() string { return e.URL + " answers " + e.Status + ": " + e.Line }

// Refused says that whoever asks may not.
func (e AnswerError) Refused() bool { return e.refused }

// Is reports whether the error is ErrNone or ErrQuestion.
func (e AnswerError) Is(target error) bool {
	return e.none && target == ErrNone || e.wrong && target == ErrQuestion
}
