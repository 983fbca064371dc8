package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"fairlead.dev/internal/console"
	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/plane"
)

const (
	// findTime bounds the search for the read API, and askTime one question to it.
	findTime = 10 * time.Second
	askTime  = 35 * time.Second
	// knockTime bounds the look whether a plane runs on this machine.
	knockTime = time.Second
)

// planeClient asks a plane: at its console if --plane-console or nothing else names one, by its read API if there is
// a kubeconfig.
func planeClient(c *cobra.Command, address string) (console.Client, error) {
	local, err := consoleClient("plane-console", address)
	if err != nil || c.Flags().Changed("plane-console") {
		return local, err
	}
	config, err := readerConfig(c)
	if err != nil || config == nil {
		return local, err
	}
	ctx := c.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	client, published, err := findRead(ctx, config)
	if err != nil || published {
		return client, err
	}
	return local, nil // that plane has no read API, and perhaps it is on this machine
}

// readerConfig is the kubeconfig by which to find a plane; nil: the console of this machine is to be asked.
func readerConfig(c *cobra.Command) (*rest.Config, error) {
	path := ""
	if f := c.Flags().Lookup("kubeconfig"); f != nil {
		path = f.Value.String()
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = path
	if path == "" && os.Getenv(clientcmd.RecommendedConfigPathEnvVar) == "" {
		_, missing := os.Stat(clientcmd.RecommendedHomeFile)
		if (missing != nil && os.Getenv("KUBERNETES_SERVICE_HOST") == "") || planeRunsHere() {
			return nil, nil
		}
	}
	// It falls back to the cluster of a pod.
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig (--kubeconfig names another): %w", err)
	}
	if config.Impersonate.UserName != "" {
		return nil, fmt.Errorf("the kubeconfig impersonates user %q: the read API knows only users themselves, so use a context without 'as'", config.Impersonate.UserName)
	}
	return config, nil
}

func planeRunsHere() bool {
	conn, err := net.DialTimeout("tcp", defaultPlaneConsole, knockTime)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// findRead finds the read API by what the leader publishes in the Kubernetes API. The client shows
// the credential of the kubeconfig there: published says that there is one.
func findRead(ctx context.Context, config *rest.Config) (c console.Client, published bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, findTime)
	defer cancel()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return c, false, fmt.Errorf("find the read API: %w", err)
	}
	m, err := client.CoreV1().ConfigMaps(plane.Namespace).Get(ctx, v1.ReadConfigMap, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return c, false, nil
	case apierrors.IsForbidden(err):
		return c, false, fmt.Errorf("find the read API: %w: the Role %s of namespace %s lets every authenticated user get it; install it as docs/reference/read-api.md says", err, v1.ReadConfigMap, plane.Namespace)
	case err != nil:
		return c, false, fmt.Errorf("find the read API by the Kubernetes API at %s: %w", config.Host, err)
	}
	to := rest.CopyConfig(config)
	to.Host, to.APIPath = m.Data[v1.ReadURL], ""
	to.Insecure, to.CAFile = false, ""
	to.CAData = []byte(m.Data[v1.ReadAuthority])
	to.ServerName = m.Data[v1.ReadServerName]
	to.Timeout = askTime
	http, err := rest.HTTPClientFor(to)
	if err != nil {
		return c, false, fmt.Errorf("make the client for the read API at %s: %w", to.Host, err)
	}
	return console.Client{URL: to.Host, HTTP: http}, true, nil
}
