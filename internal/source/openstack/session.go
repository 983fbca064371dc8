package openstack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/tokens"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/source/cloud"
)

// The pauses between attempts to sign in, and after refused credentials: some clouds lock users that try too often.
var (
	signInRetries  = cloud.Backoff{First: time.Second, Last: 10 * time.Second}
	refusedRetries = cloud.Backoff{First: time.Second, Last: time.Minute}
)

// session is a token and what came with it. It does not change.
type session struct {
	token       string
	balancers   string // base URL of the lists of load balancers, such as https://lb.example/v2.0/lbaas/
	projectID   string
	projectName string
}

// sessions are the tokens of one upstream: one for each project that needs its own, and one
// for the scope of the credentials ("").
type sessions struct {
	http        *http.Client
	credentials Credentials
	api         v1alpha1.OpenStackAPI
	plainHTTP   bool
	now         func() time.Time

	mu    sync.Mutex
	slots map[string]*slot
}

// slot is where the session of one project is, and the time before which it is not tried
// again.
type slot struct {
	signing  chan struct{} // holds a value while somebody signs in
	current  *session
	refused  error
	failures int // in a row
	until    time.Time
}

func (s *sessions) slot(project string) *slot {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.slots[project] == nil {
		s.slots[project] = &slot{signing: make(chan struct{}, 1)}
	}
	return s.slots[project]
}

// keep forgets the sessions of projects that have no view.
func (s *sessions) keep(views []view) {
	used := map[string]bool{"": true}
	for _, v := range views {
		used[v.scope.token] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.slots, func(project string, _ *slot) bool { return !used[project] })
}

// get returns the session of a project. It signs in if there is none, or if the one that
// there is is stale: the API has refused its token. Callers that come meanwhile wait for the
// same answer. After a refusal of the credentials the next attempt comes later and later, but
// it comes.
func (s *sessions) get(ctx context.Context, project string, stale *session) (*session, error) {
	slot := s.slot(project)
	select {
	case slot.signing <- struct{}{}:
		defer func() { <-slot.signing }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if slot.current != nil && slot.current != stale {
		return slot.current, nil
	}
	slot.current = nil
	if s.now().Before(slot.until) {
		return nil, slot.refused
	}
	current, err := s.signIn(ctx, project)
	switch {
	case err == nil:
		slot.current, slot.refused, slot.failures = current, nil, 0
	case ctx.Err() == nil:
		retries := signInRetries
		if reason := cloud.ReasonOf(err); reason == v1alpha1.ReasonUnauthorized || reason == v1alpha1.ReasonForbidden {
			retries = refusedRetries
		}
		slot.failures++
		slot.refused, slot.until = err, s.now().Add(retries.After(slot.failures, err))
	}
	return current, err
}

// signIn asks the identity service for a token and reads the catalog that comes with it.
func (s *sessions) signIn(ctx context.Context, project string) (*session, error) {
	ctx, record := cloud.WithRecord(ctx)
	c := &s.credentials
	options := tokens.AuthOptions{
		IdentityEndpoint: c.AuthURL,
		UserID:           c.UserID, Username: c.Username, Password: string(c.Password),
		DomainID: c.UserDomainID, DomainName: c.UserDomain,
	}
	if options.UserID != "" { // of a user's ID the domain follows
		options.Username, options.DomainID, options.DomainName = "", "", ""
	}
	if options.DomainID != "" {
		options.DomainName = ""
	}
	switch {
	case c.IsApplication():
		options.Password = ""
		options.ApplicationCredentialID, options.ApplicationCredentialSecret = c.ApplicationCredentialID, string(c.ApplicationCredentialSecret)
		if c.ApplicationCredentialID == "" {
			options.ApplicationCredentialName = c.ApplicationCredentialName
		} else {
			options.UserID, options.Username, options.DomainID, options.DomainName = "", "", "", ""
		}
	case project != "":
		options.Scope = tokens.Scope{ProjectID: project}
	case c.System:
		options.Scope = tokens.Scope{System: true}
	case c.ProjectID != "":
		options.Scope = tokens.Scope{ProjectID: c.ProjectID}
	case c.Project != "":
		options.Scope = tokens.Scope{ProjectName: c.Project, DomainID: c.ProjectDomainID, DomainName: c.ProjectDomain}
	default:
		options.Scope = tokens.Scope{DomainID: c.DomainID, DomainName: c.Domain}
	}
	if options.Scope.DomainID != "" {
		options.Scope.DomainName = ""
	}

	provider := &gophercloud.ProviderClient{HTTPClient: *s.http}
	provider.HTTPClient.Transport = small{s.http.Transport}
	provider.UseTokenLock()
	result := tokens.Create(ctx, &gophercloud.ServiceClient{ProviderClient: provider, Endpoint: c.AuthURL}, &options)
	failed := func(err error) error {
		if e := record.Err(); e != nil { // what the transport says
			return &cloud.Error{Reason: e.Reason, RetryAfter: e.RetryAfter, Err: fmt.Errorf("sign in at %s: %w", c.AuthURL, e.Err)}
		}
		var status gophercloud.ErrUnexpectedResponseCode
		if errors.As(err, &status) {
			e := answerError(status.Actual, status.ResponseHeader, status.Body, s.now())
			e.Err = fmt.Errorf("sign in at %s: %w", c.AuthURL, e.Err)
			return e
		}
		if ctx.Err() != nil {
			return err
		}
		return cloud.BadAnswer("sign in at %s: %w", c.AuthURL, err)
	}
	if result.Err != nil {
		return nil, failed(result.Err)
	}
	id, err := result.ExtractTokenID()
	if err == nil && id == "" {
		err = errors.New("the answer has no X-Subject-Token")
	}
	if len(id) > tokenBytes {
		err = fmt.Errorf("the token is longer than %d KiB", tokenBytes>>10)
	}
	if err != nil {
		return nil, failed(err)
	}
	catalog, err := result.ExtractServiceCatalog()
	if err != nil {
		return nil, failed(fmt.Errorf("catalog: %w", err))
	}
	current := &session{token: id}
	if p, err := result.ExtractProject(); err == nil && p != nil {
		if err := checkIDs(p.ID, nil); err != nil {
			return nil, failed(fmt.Errorf("the project of the token has %w", err))
		}
		current.projectID, current.projectName = p.ID, p.Name
		clip(&current.projectName, nameBytes)
	}
	current.balancers, err = s.locate(catalog)
	if err != nil {
		return nil, failed(err)
	}
	return current, nil
}

// Bounds of a sign-in. The token and the URL are kept for each project.
const (
	signInBytes   = 1 << 20
	tokenBytes    = 16 << 10
	endpointBytes = 2 << 10
)

// small bounds the answers to signing in. A catalog has some kilobytes, and the library decodes it into values that take more
// than a hundred times the memory of the text.
type small struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (s small) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := s.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Body = &smallBody{budget{Reader: resp.Body, left: signInBytes, most: signInBytes}, resp.Body}
	}
	return resp, err
}

type smallBody struct {
	budget
	io.Closer
}

func (b *smallBody) Read(p []byte) (int, error) { return b.budget.Read(p) }

// locate finds the base URL of the lists of load balancers.
func (s *sessions) locate(catalog *tokens.ServiceCatalog) (string, error) {
	kinds, endpoint := []string{"load-balancer", "loadbalancer"}, s.credentials.LoadBalancerEndpoint
	if s.api == v1alpha1.OpenStackLBaaSv2 {
		kinds, endpoint = []string{"network", "networking"}, s.credentials.NetworkEndpoint
	}
	var others []string
	for _, entry := range catalog.Entries {
		if !slices.Contains(kinds, entry.Type) {
			continue
		}
		for _, e := range entry.Endpoints {
			region := e.RegionID
			if region == "" {
				region = e.Region
			}
			others = append(others, fmt.Sprintf("%s in %s", e.Interface, region))
			if endpoint == "" && e.Interface == s.credentials.Interface && (s.credentials.Region == "" || s.credentials.Region == region) {
				endpoint = e.URL
			}
		}
	}
	if endpoint == "" {
		where := "interface " + s.credentials.Interface
		if s.credentials.Region != "" {
			where += " in region " + s.credentials.Region
		}
		there := "no endpoint of this type"
		if len(others) > 0 {
			there = strings.Join(others, ", ")
		}
		return "", fmt.Errorf("the catalog has no endpoint of type %s with %s, but %s", kinds[0], where, there)
	}
	if !strings.HasPrefix(endpoint, "https://") && (!s.plainHTTP || !strings.HasPrefix(endpoint, "http://")) {
		return "", fmt.Errorf("the catalog's endpoint %s is refused, since tokens are sent there: %s does not name plain-http", endpoint, cloud.AllowFlag)
	}
	if len(endpoint) > endpointBytes {
		return "", fmt.Errorf("the catalog's endpoint is longer than %d KiB", endpointBytes>>10)
	}
	base := strings.TrimRight(endpoint, "/")
	for _, version := range []string{"/v2.0", "/v2"} {
		base = strings.TrimSuffix(base, version)
	}
	return base + "/v2.0/lbaas/", nil
}
