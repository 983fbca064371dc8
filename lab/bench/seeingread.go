package bench

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"fairlead.dev/internal/console"
	v1 "fairlead.dev/internal/console/v1"
)

const (
	// idleTime is for how long a plane at rest is watched, and calmTime how long it has to come to rest.
	idleTime = 20 * time.Second
	calmTime = 10 * time.Second
	pageRows = 100
	// askedRoutes are those whose requests are counted by clients.
	askedRoutes = 30
	// revokeLimit is when a stream whose right is gone has to have ended.
	revokeLimit = 30 * time.Second
)

// reader is a user of the read API.
type reader struct {
	console.Client
	kube kubernetes.Interface
	name string // of the ServiceAccount in namespace default, and of the binding
}

// newReader makes a user who may read everything.
func (b *seeingBench) newReader(ctx context.Context, name string) (*reader, error) {
	config, err := clientcmd.BuildConfigFromFlags("", b.plane.Kubeconfig())
	if err != nil {
		return nil, err
	}
	config.Dial, config.QPS = b.plane.Machine.Dial, -1
	k, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	accounts := k.CoreV1().ServiceAccounts("default")
	if _, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	issued, err := accounts.CreateToken(ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	if _, err := k.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "fairlead-reader"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: name}},
	}, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	at, err := k.CoreV1().ConfigMaps("fairlead-system").Get(ctx, v1.ReadConfigMap, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(at.Data[v1.ReadAuthority]))
	transport := &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return b.machine.Dial(ctx, network, address)
		},
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots, ServerName: at.Data[v1.ReadServerName]},
	}
	return &reader{
		Client: console.Client{URL: at.Data[v1.ReadURL], HTTP: &http.Client{Timeout: time.Minute, Transport: bearing{issued.Status.Token, transport}}},
		kube:   k, name: name,
	}, nil
}

// bearing shows a token.
type bearing struct {
	token string
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (b bearing) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(r)
}

// readAPI measures pages and streams.
func (b *seeingBench) readAPI(ctx context.Context) error {
	b.progress("%d routes: pages and streams of the read API", b.row.Routes)
	b.row.Read = &SeeingRead{Open: b.Viewers}
	u, err := b.newReader(ctx, "bench-reader")
	if err != nil {
		return err
	}
	var took []float64
	for range 21 {
		began := b.Now()
		if _, err := u.Get(ctx, v1.RoutesPath+"?limit="+strconv.Itoa(pageRows)); err != nil {
			return err
		}
		took = append(took, millis(b.Now().Sub(began)))
	}
	took = took[1:] // the first one also asks who may
	b.row.Read.FirstPage, b.row.Read.FirstPageMax = percentile(took, 0.5), percentile(took, 1)
	return errors.Join(b.streams(ctx, u), b.revoke(ctx))
}

// streams opens streams of all routes, and measures what they take while nothing changes, and how soon they tell of a change.
func (b *seeingBench) streams(ctx context.Context, u *reader) (err error) {
	r := b.row.Read
	if r.Idle, err = b.idle(ctx); err != nil {
		return err
	}
	streams, end := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer end()
	var current, ended atomic.Int64
	told := make(chan time.Time, 1000)
	for i := range b.Viewers {
		wg.Go(func() {
			known := false
			_ = u.Stream(streams, v1.RoutesPath+"?watch=true", "", func(e console.Event) error {
				switch {
				case e.Name == v1.EventCurrent && !known:
					known = true
					current.Add(1)
				case e.Name == v1.EventBlock && known && i == 0:
					select {
					case told <- b.Now():
					default:
					}
				}
				return nil
			})
			ended.Add(1)
		})
	}
	for began := b.Now(); current.Load() < int64(b.Viewers); time.Sleep(100 * time.Millisecond) {
		if b.Now().Sub(began) > 2*time.Minute || ended.Load() > 0 {
			return fmt.Errorf("%d of %d streams have begun, and %d have ended", current.Load(), b.Viewers, ended.Load())
		}
	}
	busy, err := b.idle(ctx)
	if err != nil {
		return err
	}
	r.Streams = toFourth(max(0, busy-r.Idle))
	var took []float64
	for range 20 {
		for len(told) > 0 {
			<-told
		}
		began := b.Now()
		if _, err := b.change(ctx, 1); err != nil {
			return err
		}
		select {
		case at := <-told:
			took = append(took, millis(at.Sub(began)))
		case <-time.After(20 * time.Second):
			return errors.New("a stream does not tell of a change")
		}
		time.Sleep(1500 * time.Millisecond) // the status of the route follows, and is told, too
	}
	r.ChangedP50, r.ChangedMax = percentile(took, 0.5), percentile(took, 1)
	if ended.Load() > 0 {
		return fmt.Errorf("%d streams have ended", ended.Load())
	}
	return nil
}

// idle is the plane's processor time while nothing changes, as a part of one core.
func (b *seeingBench) idle(ctx context.Context) (float64, error) {
	pid := b.plane.Process.Pid().ID
	if err := pause(ctx, calmTime); err != nil {
		return 0, err
	}
	began := b.Now()
	before, err := processorTime(pid)
	if err != nil {
		return 0, err
	}
	if err := pause(ctx, idleTime); err != nil {
		return 0, err
	}
	after, err := processorTime(pid)
	return toFourth((after - before).Seconds() / b.Now().Sub(began).Seconds()), err
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// revoke takes the right of a user away who has a stream.
func (b *seeingBench) revoke(ctx context.Context) error {
	u, err := b.newReader(ctx, "bench-revoked")
	if err != nil {
		return err
	}
	began, over := make(chan struct{}), make(chan error, 1)
	var once sync.Once
	go func() {
		over <- u.Stream(ctx, v1.RoutesPath+"?watch=true", "", func(e console.Event) error {
			if e.Name == v1.EventCurrent {
				once.Do(func() { close(began) })
			}
			return nil
		})
	}()
	select {
	case <-began:
	case err := <-over:
		return fmt.Errorf("a stream ends: %w", err)
	}
	if err := u.kube.RbacV1().ClusterRoleBindings().Delete(ctx, u.name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	at := b.Now()
	select {
	case err := <-over:
		if err == nil {
			return errors.New("a stream ends without a word")
		}
		b.row.Read.Revoked = seconds(b.Now().Sub(at))
		return nil
	case <-time.After(revokeLimit):
		return fmt.Errorf("a stream goes on %s after its right is gone", revokeLimit)
	}
}
