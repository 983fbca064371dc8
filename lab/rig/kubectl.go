package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Kubectl runs kubectl as the plane's administrator, on its machine.
func (p *Plane) Kubectl(ctx context.Context, stdin string, args ...string) ([]byte, error) {
	out, _, err := p.kubectl(ctx, stdin, args...)
	return out, err
}

// Applied is what came of `kubectl apply`.
type Applied struct {
	// Objects is how many were applied.
	Objects int
	// Told is when kubectl began to send each object that it wrote, by the path of
	// its URL. It is empty if kubectl does not say.
	Told map[string]time.Time
}

// ToldOf returns when the object was sent whose URL's path contains part, and false
// if that is not known.
func (a Applied) ToldOf(part string) (time.Time, bool) {
	for path, at := range a.Told {
		if strings.Contains(path, part) {
			return at, true
		}
	}
	return time.Time{}, false
}

// Apply runs kubectl apply with a manifest.
func (p *Plane) Apply(ctx context.Context, manifest string) (Applied, error) {
	// -v=6 makes kubectl log each request that it made.
	out, log, err := p.kubectl(ctx, manifest, "apply", "-v=6", "-f", "-")
	if err != nil {
		return Applied{}, err
	}
	return Applied{Objects: bytes.Count(out, []byte("\n")), Told: toldTimes(string(log), p.rig.Now())}, nil
}

// written is klog's line of a finished request that changed an object:
// I1121 07:00:01.123456   12345 round_trippers.go:632] "Response" verb="PATCH" url="https://host/path?query" status="200 OK" milliseconds=12
var written = regexp.MustCompile(`(?m)^I(\d{4} \d\d:\d\d:\d\d\.\d{6}) .*"Response" verb="(?:PATCH|POST|PUT)" url="https?://[^/"]*([^"?]*)[^"]*" status="2.*milliseconds=(\d+)`)

// toldTimes reads when requests were sent. klog leaves the year out and writes
// local time.
func toldTimes(log string, now time.Time) map[string]time.Time {
	told := map[string]time.Time{}
	for _, m := range written.FindAllStringSubmatch(log, -1) {
		answered, err := time.ParseInLocation("20060102 15:04:05.000000", strconv.Itoa(now.Local().Year())+m[1], time.Local)
		took, atoiErr := strconv.Atoi(m[3])
		if err == nil && atoiErr == nil {
			told[m[2]] = answered.Add(-time.Duration(took) * time.Millisecond)
		}
	}
	return told
}

// kubectl returns what kubectl wrote to standard output and error.
func (p *Plane) kubectl(ctx context.Context, stdin string, args ...string) (out, log []byte, err error) {
	cache, err := p.Machine.Dir("kubectl-cache")
	if err != nil {
		return nil, nil, err
	}
	argv := append([]string{p.rig.Kubectl, "--kubeconfig", p.Kubeconfig(), "--cache-dir", cache}, args...)
	c := p.Machine.Command(ctx, argv...)
	c.Env = append(os.Environ(), noProxies...)
	c.Stdin = strings.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	err = c.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%w: %.500s", err, strings.TrimSpace(klogLine.ReplaceAllString(stderr.String(), "")))
	}
	if err != nil {
		return nil, nil, fmt.Errorf("kubectl %s: %w", strings.Join(args, " "), err)
	}
	return stdout.Bytes(), stderr.Bytes(), nil
}

// klogLine is a line that kubectl logs, unlike what it tells people.
var klogLine = regexp.MustCompile(`(?m)^[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{6} .*\n?`)
