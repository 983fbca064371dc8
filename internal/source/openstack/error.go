package openstack

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/source/cloud"
)

// messageBytes bounds the part of an API's error message that is passed on.
const messageBytes = 300

// errNotFound is wrapped by the error of an answer with status 404.
var errNotFound = errors.New("not found")

// answerError is the error of an answer with a status that means one.
func answerError(status int, header http.Header, body []byte, now time.Time) *cloud.Error {
	text := strconv.Itoa(status) + " " + http.StatusText(status)
	if message := messageOf(body); message != "" {
		text += ": " + message
	}
	err := errors.New(text)
	if status == http.StatusNotFound {
		err = fmt.Errorf("%w: %s", errNotFound, text)
	}
	e := cloud.Classify(err, status)
	e.RetryAfter = cloud.RetryAfter(header, now)
	return e
}

// messageOf is the message in an error's JSON: keystone has {"error": {"message"}}, octavia
// {"faultstring"}, neutron {"NeutronError": {"message"}}. Other bodies may be pages of proxies.
func messageOf(body []byte) string {
	var known struct {
		Error        struct{ Message string }
		FaultString  string `json:"faultstring"`
		NeutronError struct{ Message string }
	}
	if json.Unmarshal(body, &known) != nil {
		return ""
	}
	message := known.Error.Message + known.FaultString + known.NeutronError.Message
	message = strings.Join(strings.Fields(strings.ToValidUTF8(message, "")), " ")
	if len(message) > messageBytes {
		message = strings.ToValidUTF8(message[:messageBytes], "") + "..."
	}
	return message
}

func isNotFound(err error) bool { return errors.Is(err, errNotFound) }

func isForbidden(err error) bool {
	var e *cloud.Error
	return errors.As(err, &e) && e.Reason == v1alpha1.ReasonForbidden
}
