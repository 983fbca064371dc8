package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const kubeconfigHelp = "kubeconfig of the API (default $KUBECONFIG, else " + defaultPlaneDir + "/" + defaultKubeconfigName + ")"

// kubeconfigFlag names the API for verbs that need it.
func kubeconfigFlag(c *cobra.Command, path *string) {
	if c.Flags().Lookup("kubeconfig") != nil {
		panic("kubeconfigFlag comes before consoleFlag")
	}
	c.Flags().StringVar(path, "kubeconfig", "", kubeconfigHelp)
}

// required marks a flag that a command cannot do without.
func required(c *cobra.Command, flag string) {
	if err := c.MarkFlagRequired(flag); err != nil {
		panic(err) // the flag does not exist: a bug of this package
	}
}

// restConfig reads the kubeconfig: the flag's, the environment's, or the one that
// a plane on this machine wrote.
func restConfig(path string) (*rest.Config, error) {
	if path == "" {
		path = os.Getenv(clientcmd.RecommendedConfigPathEnvVar)
	}
	if path == "" {
		path = filepath.Join(defaultPlaneDir, defaultKubeconfigName)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		// The file that err misses may be one that the kubeconfig names.
		if _, missing := os.Stat(path); errors.Is(missing, fs.ErrNotExist) {
			return nil, fmt.Errorf("no kubeconfig at %s: run this on the plane's machine, or set --kubeconfig or %s", path, clientcmd.RecommendedConfigPathEnvVar)
		}
		return nil, fmt.Errorf("read the kubeconfig %s (--kubeconfig names another): %w", path, err)
	}
	return config, nil
}
