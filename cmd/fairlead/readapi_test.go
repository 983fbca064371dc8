package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"fairlead.dev/internal/console"
	v1 "fairlead.dev/internal/console/v1"
)

// TestReadByKubeconfig runs a whole plane, and asks it by kubeconfigs: as an administrator with a client certificate,
// as users with a token, by an exec plugin, and as nobody.
func TestReadByKubeconfig(t *testing.T) {
	dir := t.TempDir()
	admin := filepath.Join(dir, "plane", defaultKubeconfigName)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	var logs locked
	go func() {
		ended <- runPlane(ctx, &planeFlags{
			dataDir: filepath.Join(dir, "plane"), bindAddress: "127.0.0.1", advertiseAddress: "127.0.0.1", consoleAddress: "127.0.0.1:0",
			readAddress: "127.0.0.1:0", installCRDs: true, machineTTL: 10 * time.Second, ingressRoutePort: 80, ingressRouteTLSPort: 443,
		}, slog.New(slog.NewTextHandler(&logs, nil)), nil)
	}()
	defer func() {
		stop()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}()
	eventually(t, ended, func() error {
		_, err := execute("status", "--kubeconfig", admin)
		return err
	})
	if out, err := execute("routes", "--kubeconfig", admin, "-o", "json"); err != nil || strings.TrimSpace(out) != "[]" {
		t.Fatalf("routes of the administrator: %q, %v", out, err)
	}

	config, err := clientcmd.BuildConfigFromFlags("", admin)
	if err != nil {
		t.Fatal(err)
	}
	api := kubernetes.NewForConfigOrDie(config)
	for _, name := range []string{"shop", "bank"} {
		if _, err := api.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, ended, func() error {
		_, err := api.CoreV1().ServiceAccounts("shop").Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	issued, err := api.CoreV1().ServiceAccounts("shop").CreateToken(ctx, "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	user := filepath.Join(dir, "user")
	writeAs(t, admin, user, &clientcmdapi.AuthInfo{Token: issued.Status.Token})
	_, err = execute("routes", "--kubeconfig", user)
	for _, want := range []string{`user "system:serviceaccount:shop:default" may not list routes.read.fairlead.dev in all namespaces`, "fairlead-reader", "-n"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a user without rights: %v, want %q", err, want)
		}
	}
	// Who may view a namespace may read what planes know of it, and of no other.
	_, err = api.RbacV1().RoleBindings("shop").Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "viewers"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "shop", Name: "default"}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, ended, func() error {
		_, err := execute("routes", "-n", "shop", "--kubeconfig", user)
		return err
	})
	for _, line := range []string{"routes -n bank", "routes", "status", "revisions"} {
		if _, err := execute(append(strings.Fields(line), "--kubeconfig", user)...); err == nil || !strings.Contains(err.Error(), "may not") {
			t.Errorf("%s: %v", line, err)
		}
	}
	// To see single requests takes a right of its own, and ends with it.
	_, err = execute("tap", "-n", "shop", "--kubeconfig", user)
	for _, want := range []string{`may not tap requests.read.fairlead.dev in namespace "shop"`, "fairlead-tapper"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("who may view a namespace taps it: %v, want %q", err, want)
		}
	}
	tappers, err := api.RbacV1().RoleBindings("shop").Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "tappers"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "fairlead-tapper"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "shop", Name: "default"}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	usersConfig, err := clientcmd.BuildConfigFromFlags("", user)
	if err != nil {
		t.Fatal(err)
	}
	reader, _, err := findRead(ctx, usersConfig)
	if err != nil {
		t.Fatal(err)
	}
	leavesOthersTaps(t, ended, reader, admin)
	eventually(t, ended, func() error {
		taps := 0
		err := reader.Tap(ctx, console.TapQuestion{Namespace: "shop"}, func(v1.TapEvent) error {
			if taps++; taps > 1 {
				return nil
			}
			return api.RbacV1().RoleBindings("shop").Delete(ctx, tappers.Name, metav1.DeleteOptions{})
		})
		if taps == 0 {
			return fmt.Errorf("nothing came: %w", err)
		}
		return nil
	})
	eventually(t, ended, func() error {
		for _, want := range []string{`msg="requests are tapped" by=system:serviceaccount:shop:default filter="namespace=\"shop\""`, `msg="requests are tapped no more" by=system:serviceaccount:shop:default`} {
			if !strings.Contains(logs.String(), want) {
				return fmt.Errorf("not logged: %s in %s", want, tappedLines(logs.String()))
			}
		}
		return nil
	})
	// An exec plugin has the token.
	if cat, err := exec.LookPath("cat"); err == nil {
		said := filepath.Join(dir, "said")
		writeFile(t, said, `{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"`+issued.Status.Token+`"}}`)
		plugin := filepath.Join(dir, "plugin")
		writeAs(t, admin, plugin, &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
			APIVersion: "client.authentication.k8s.io/v1", Command: cat, Args: []string{said}, InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		}})
		if _, err := execute("routes", "-n", "shop", "--kubeconfig", plugin); err != nil {
			t.Errorf("by an exec plugin: %v", err)
		}
	}
	// $KUBECONFIG names it, too.
	t.Setenv(clientcmd.RecommendedConfigPathEnvVar, user)
	if _, err := execute("routes", "-n", "shop"); err != nil {
		t.Errorf("by $KUBECONFIG: %v", err)
	}
	nobody := filepath.Join(dir, "nobody")
	writeAs(t, admin, nobody, &clientcmdapi.AuthInfo{Token: "nobody's"})
	if _, err := execute("routes", "--kubeconfig", nobody); err == nil || !strings.Contains(err.Error(), "nauthorized") {
		t.Errorf("as nobody: %v", err)
	}
}

// leavesOthersTaps attacks: a user opens as many taps as it gets, and the administrator still gets one.
func leavesOthersTaps(t *testing.T, ended <-chan error, user console.Client, admin string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	refused := make(chan error, 1)
	var all sync.WaitGroup
	for range 40 { // more than there are
		all.Go(func() {
			for ctx.Err() == nil { // the right takes a moment to be there
				err := user.Tap(ctx, console.TapQuestion{Namespace: "shop"}, func(v1.TapEvent) error { return nil })
				if err != nil && strings.Contains(err.Error(), "which is the most for one user") {
					select {
					case refused <- err:
					default:
					}
					return
				}
			}
		})
	}
	select {
	case err := <-refused:
		if !strings.Contains(err.Error(), `user "system:serviceaccounts:shop" has 8 taps open`) {
			t.Error(err)
		}
	case err := <-ended:
		t.Fatalf("the plane ended: %v", err)
	case <-time.After(time.Minute):
		t.Fatal("one user may have as many taps as it likes")
	}
	config, err := clientcmd.BuildConfigFromFlags("", admin)
	if err != nil {
		t.Fatal(err)
	}
	other, _, err := findRead(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	enough := errors.New("enough is read")
	if err := other.Tap(ctx, console.TapQuestion{}, func(v1.TapEvent) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("another user: %v", err)
	}
	cancel()
	all.Wait()
}

// locked is text that several goroutines write.
type locked struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (l *locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// writeAs writes a kubeconfig with another user.
func writeAs(t *testing.T, from, to string, as *clientcmdapi.AuthInfo) {
	t.Helper()
	config, err := clientcmd.LoadFromFile(from)
	if err != nil {
		t.Fatal(err)
	}
	for name := range config.AuthInfos {
		config.AuthInfos[name] = as
	}
	if err := clientcmd.WriteToFile(*config, to); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(to, 0o600); err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, ended <-chan error, check func() error) {
	t.Helper()
	limit := time.Now().Add(2 * time.Minute)
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case failure := <-ended:
			t.Fatalf("the plane ended: %v", failure)
		default:
		}
		if time.Now().After(limit) {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func tappedLines(text string) (lines string) {
	for line := range strings.Lines(text) {
		if strings.Contains(line, "tapped") {
			lines += line
		}
	}
	return lines
}
