package embedded

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
)

func putConfigMap(ctx context.Context, c kubernetes.Interface, name, value string) error {
	_, err := c.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"value": value},
	}, metav1.CreateOptions{})
	return err
}

func hasConfigMap(t *testing.T, c kubernetes.Interface, name string) bool {
	t.Helper()
	_, err := c.CoreV1().ConfigMaps("default").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return err == nil
}

// One data directory through its life: killed in the middle of writes, backed up while a process
// runs on it and while none does, restored, used on.
func TestDataSurvivesKillBackupAndRestore(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	files := t.TempDir()
	online, offline := filepath.Join(files, "online.tar"), filepath.Join(files, "offline.tar")
	process, cfg := serve(t, childSpec{DataDir: dir})
	c := clientFor(t, cfg)

	// Kill -9 while four writers write; every acknowledged write is there afterwards.
	var acked [4]atomic.Int64
	var writers sync.WaitGroup
	enough := make(chan struct{})
	var once sync.Once
	for w := range acked {
		writers.Go(func() {
			for n := 1; ; n++ {
				if err := putConfigMap(t.Context(), c, fmt.Sprintf("w%d-%d", w, n), "x"); err != nil {
					return
				}
				acked[w].Store(int64(n))
				if n == 50 {
					once.Do(func() { close(enough) })
				}
			}
		})
	}
	<-enough
	process.kill(t)
	writers.Wait()
	process, cfg = serve(t, childSpec{DataDir: dir})
	c = clientFor(t, cfg)
	list, err := c.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for _, m := range list.Items {
		there[m.Name] = true
	}
	for w := range acked {
		for n := int64(1); n <= acked[w].Load(); n++ {
			if name := fmt.Sprintf("w%d-%d", w, n); !there[name] {
				t.Errorf("%s was acknowledged and is gone", name)
			}
		}
	}

	// A second process is refused by name of the first.
	_, err = Start(t.Context(), Config{DataDir: dir, Log: testLog(t)})
	wantError(t, err, "in use", dir, fmt.Sprintf("process %d", process.cmd.Process.Pid))
	wantError(t, Restore(t.Context(), dir, online, nil), "in use", fmt.Sprint(process.cmd.Process.Pid))

	// Online: the backup holds what was there when it began and nothing after.
	if err := putConfigMap(t.Context(), c, "before-online", ""); err != nil {
		t.Fatal(err)
	}
	if err := Backup(t.Context(), dir, online, "v1.2.3"); err != nil {
		t.Fatal(err)
	}
	if err := putConfigMap(t.Context(), c, "after-online", ""); err != nil {
		t.Fatal(err)
	}
	last, err := c.CoreV1().ConfigMaps("default").Get(t.Context(), "after-online", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	process.kill(t)

	// Offline, right after a kill: what only etcd's log holds is in the backup too.
	if err := Backup(t.Context(), dir, offline, "v1.2.3"); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(online); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the backup has mode %v, error %v", info.Mode(), err)
	}
	if err := Restore(t.Context(), dir, online, nil); err != nil {
		t.Fatal(err)
	}
	aside, err := filepath.Glob(dir + ".before-restore-*")
	if err != nil || len(aside) != 1 {
		t.Fatalf("moved aside: %v, %v", aside, err)
	}
	process, restored := serve(t, childSpec{DataDir: dir})
	r := clientFor(t, restored)
	if !hasConfigMap(t, r, "before-online") || hasConfigMap(t, r, "after-online") {
		t.Error("the online backup does not hold exactly what was there")
	}
	// The certificates came along: a kubeconfig from before the restore works but for the port.
	cfg.Host = restored.Host
	if _, err := clientFor(t, cfg).Discovery().ServerVersion(); err != nil {
		t.Errorf("a kubeconfig from before the restore: %v", err)
	}
	if err := putConfigMap(t.Context(), r, "after-restore", ""); err != nil {
		t.Fatal(err)
	}
	now, err := r.CoreV1().ConfigMaps("default").Get(t.Context(), "after-restore", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(now.ResourceVersion) < len(last.ResourceVersion) || now.ResourceVersion <= last.ResourceVersion && len(now.ResourceVersion) == len(last.ResourceVersion) {
		t.Errorf("resource version %s after the restore is not above %s from before it", now.ResourceVersion, last.ResourceVersion)
	}
	// A watch that somebody has open, say in a terminal, does not hold up the end.
	watch, err := r.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	process.stop(t)

	// The offline backup into a directory that is not there.
	elsewhere := filepath.Join(t.TempDir(), "deep", "data")
	if err := Restore(t.Context(), elsewhere, offline, nil); err != nil {
		t.Fatal(err)
	}
	testStore(t, elsewhere, defaultEtcdQuota, mebibyte)

	got, err := dialStore(t, elsewhere).Get(t.Context(), storagePrefix+"/configmaps/default/after-online")
	if err != nil || got.Count != 1 {
		t.Errorf("the offline backup lacks the last write: %v", err)
	}
}

// A database that is full must not keep the API from starting, or nobody could delete anything.
func TestFullDatabaseStartsAndRecovers(t *testing.T) {
	t.Parallel()
	spec := childSpec{DataDir: t.TempDir(), EtcdQuota: 16 * mebibyte}
	process, cfg := serve(t, spec)
	c := clientFor(t, cfg)
	big := strings.Repeat("x", 512<<10)
	var err error
	n := 0
	for ; err == nil && n < 200; n++ {
		err = putConfigMap(t.Context(), c, fmt.Sprintf("big-%03d", n), big)
	}
	wantError(t, err, "database space exceeded")
	process.kill(t)

	// Rewriting the file may have made some room; with half the quota it certainly does not.
	spec.EtcdQuota /= 2
	process, cfg = serve(t, spec)
	c = clientFor(t, cfg)
	wantError(t, putConfigMap(t.Context(), c, "refused", big), "database space exceeded")
	// Each write that is refused is told to who wrote; the log has it once.
	const writes = 20
	said := process.stderr.String()
	for i := range writes {
		wantError(t, putConfigMap(t.Context(), c, fmt.Sprintf("refused-%d", i), ""), "database space exceeded")
	}
	if more := strings.TrimPrefix(process.stderr.String(), said); strings.Count(more, "\n") >= writes {
		t.Errorf("%d writes that were refused have %d lines in the log:\n%s", writes, strings.Count(more, "\n"), more)
	}
	for i := range n - 1 {
		if err := c.CoreV1().ConfigMaps("default").Delete(t.Context(), fmt.Sprintf("big-%03d", i), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "writes are accepted again", func() error { return putConfigMap(t.Context(), c, "accepted", big) })
	process.stop(t)
}

// The data in an outside etcd, and the API on IPv6.
func TestOutsideEtcdAndIPv6(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	etcdURL := url.URL{Scheme: "http", Host: ln.Addr().String()}
	ln.Close()
	e := embed.NewConfig()
	e.Dir, e.LogLevel = t.TempDir(), "fatal"
	e.ListenPeerUrls = nil
	e.ListenClientUrls, e.AdvertiseClientUrls = []url.URL{etcdURL}, []url.URL{etcdURL}
	etcd, err := embed.StartEtcd(e)
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	<-etcd.Server.ReadyNotify()

	bind := "::1"
	if probe, err := net.Listen("tcp", "[::1]:0"); err != nil {
		t.Logf("this machine has no IPv6 (%v): the API binds to IPv4", err)
		bind = "127.0.0.1"
	} else {
		probe.Close()
	}
	dir := t.TempDir()
	process, cfg := serve(t, childSpec{DataDir: dir, Bind: bind, EtcdServers: []string{etcdURL.String()}})
	if bind == "::1" && !strings.HasPrefix(cfg.Host, "https://[::1]:") {
		t.Errorf("the kubeconfig names %s", cfg.Host)
	}
	c := clientFor(t, cfg)
	if err := putConfigMap(t.Context(), c, "outside", ""); err != nil {
		t.Fatal(err)
	}
	svc, err := c.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "one"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if want := []corev1.IPFamily{corev1.IPv4Protocol}; !slices.Equal(svc.Spec.IPFamilies, want) {
		t.Errorf("a Service that names no family has %v, %s", svc.Spec.IPFamilies, svc.Spec.ClusterIP)
	}
	both, six := corev1.IPFamilyPolicyRequireDualStack, []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}
	if svc, err = c.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "both"}, Spec: corev1.ServiceSpec{IPFamilyPolicy: &both, IPFamilies: six, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{}); err != nil || !slices.Equal(svc.Spec.IPFamilies, six) || !strings.HasPrefix(svc.Spec.ClusterIP, "fd00:fa17::") {
		t.Errorf("one that wants IPv6 first has %v, %s: %v", svc.Spec.IPFamilies, svc.Spec.ClusterIP, err)
	}
	if _, err := os.Stat(etcdDir(dir)); !os.IsNotExist(err) {
		t.Errorf("an etcd ran in the process as well: %v", err)
	}
	wantError(t, Backup(t.Context(), dir, filepath.Join(dir, "b.tar"), "v1.2.3"), "holds no database", "etcdctl snapshot save")
	process.stop(t)
}

// A start that takes too long ends, says so and leaves the data directory to the next.
func TestStartTimesOut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := startChild(t, childSpec{Role: "serve", DataDir: dir, Timeout: 500 * time.Millisecond})
	if c.lines.Scan() {
		t.Skipf("this machine starts an API within half a second")
	}
	if err := c.cmd.Wait(); err == nil {
		t.Error("the child ended without an error")
	}
	for _, want := range []string{"child ended", "not done after 500ms"} {
		if !strings.Contains(c.stderr.String(), want) {
			t.Errorf("the child does not say %q:\n%s", want, c.stderr.String())
		}
	}
	testStore(t, dir, defaultEtcdQuota, mebibyte)
}

// When etcd gives up the server ends by itself and says why, whatever hangs.
func TestServerEndsWhenEtcdGivesUp(t *testing.T) {
	t.Parallel()
	c := startChild(t, childSpec{Role: "break", DataDir: t.TempDir()})
	c.line(t)
	if err := c.cmd.Wait(); err == nil {
		t.Error("the child ended without an error")
	}
	for _, want := range []string{"kubernetes api ended by itself", `msg="child ended" error="broken by a test"`} {
		if !strings.Contains(c.stderr.String(), want) {
			t.Errorf("the child does not say %q:\n%s", want, c.stderr.String())
		}
	}
}

// A server that ends while it takes up definitions does not make the next one wait for a resync,
// which is five minutes away.
func TestInterruptedDefinitionsAreEstablished(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	process, cfg := serve(t, childSpec{DataDir: dir})
	definition := fsWith(boatCRD("halves", "", "v1"))
	if err := InstallCRDs(t.Context(), cfg, testLog(t), definition); err != nil {
		t.Fatal(err)
	}
	process.stop(t)
	unestablish(t, dir, "halves.test.fairlead.dev")

	_, cfg = serve(t, childSpec{DataDir: dir})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var log bytes.Buffer
	if err := InstallCRDs(ctx, cfg, slog.New(slog.NewTextHandler(&log, nil)), definition); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "name=halves.test.fairlead.dev not_yet=Established") {
		t.Errorf("the log does not say what is waited for:\n%s", log.String())
	}
	c, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	o, err := c.Resource(crdResources[0].resource).Get(t.Context(), "halves.test.fairlead.dev", metav1.GetOptions{})
	if err != nil || len(o.GetAnnotations()) != 0 {
		t.Errorf("annotations stay: %v, %v", o.GetAnnotations(), err)
	}
}

// unestablish leaves a definition as a server does that ends right after it has accepted the names.
func unestablish(t *testing.T, dir, name string) {
	t.Helper()
	s, err := startStore(t.Context(), storeConfig{dataDir: dir, quota: defaultEtcdQuota, reserve: mebibyte, log: testLog(t), now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	etcd := dialStore(t, dir)
	key := storagePrefix + "/apiextensions.k8s.io/customresourcedefinitions/" + name
	got, err := etcd.Get(t.Context(), key)
	if err != nil || got.Count != 1 {
		t.Fatalf("%s: %v, %v", key, got, err)
	}
	// Byte for byte what a server writes: else the next one rewrites it, which is a change.
	before := string(got.Kvs[0].Value)
	half := regexp.MustCompile(`("type":"Established","status":)"True"(,"lastTransitionTime":"[^"]*","reason":)"InitialNamesAccepted"`).ReplaceAllString(before, `$1"False"$2"Installing"`)
	if half == before {
		t.Fatalf("it is not established: %s", before)
	}
	if _, err := etcd.Put(t.Context(), key, half); err != nil {
		t.Fatal(err)
	}
	if err := s.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}
