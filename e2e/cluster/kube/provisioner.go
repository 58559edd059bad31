package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

// provisionerName is what a StorageClass names.
const provisionerName = "bellwether.dev/local"

// enforceSize is the parameter of a StorageClass whose volumes hold no more than they were asked for, as
// disks do: each is a file system in memory. Without it all of a node's volumes share its disk.
const enforceSize = "enforceSize"

// nodePlaceholder stands for the node's name in the --volumes pattern.
const nodePlaceholder = "{node}"

// provisioner makes one directory per volume below the directory of the node that runs the pod.
//
// The volumes are of type `local`, not `hostPath`: kubelet applies fsGroup to local volumes, so a pod
// that is not root can write to them, and their node affinity keeps a pod with its data, as a disk
// in a cloud's zone does.
type provisioner struct {
	volumes string
}

var _ controller.Provisioner = &provisioner{}

func (p *provisioner) directory(node, volume string) string {
	return filepath.Join(strings.ReplaceAll(p.volumes, nodePlaceholder, node), volume)
}

// Provision creates the directory and describes it as a PersistentVolume.
func (p *provisioner) Provision(_ context.Context, options controller.ProvisionOptions) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	if options.SelectedNodeName == "" {
		return nil, controller.ProvisioningFinished, errors.New("no node was selected: the StorageClass must say volumeBindingMode: WaitForFirstConsumer")
	}
	if mode := options.PVC.Spec.VolumeMode; mode != nil && *mode != corev1.PersistentVolumeFilesystem {
		return nil, controller.ProvisioningFinished, fmt.Errorf("volumeMode %s is not supported", *mode)
	}
	node := options.SelectedNodeName
	directory := p.directory(node, options.PVName)
	// Owned by root, like the root of a freshly made file system: fsGroup opens it, as in a cloud.
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	size := options.PVC.Spec.Resources.Requests[corev1.ResourceStorage]
	if options.StorageClass.Parameters[enforceSize] == "true" {
		if err := mountSized(directory, size.Value()); err != nil {
			return nil, controller.ProvisioningFinished, fmt.Errorf("mount %s: %w", directory, err)
		}
	}
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: options.PVName},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: *options.StorageClass.ReclaimPolicy,
			AccessModes:                   options.PVC.Spec.AccessModes,
			MountOptions:                  options.StorageClass.MountOptions,
			Capacity: corev1.ResourceList{
				corev1.ResourceStorage: size,
			},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				Local: &corev1.LocalVolumeSource{Path: directory},
			},
			NodeAffinity: &corev1.VolumeNodeAffinity{
				Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
					MatchExpressions: []corev1.NodeSelectorRequirement{{
						Key:      corev1.LabelHostname,
						Operator: corev1.NodeSelectorOpIn,
						Values:   []string{node},
					}},
				}}},
			},
		},
	}
	return volume, controller.ProvisioningFinished, nil
}

// mountSized gives the directory a file system of that many bytes, if it has none yet: a claim may be
// provisioned twice. kubelet runs in the same mount namespace and sees it.
func mountSized(directory string, bytes int64) error {
	mounted, err := isMountPoint(directory)
	if err != nil || mounted {
		return err
	}
	return syscall.Mount("bellwether", directory, "tmpfs", 0, fmt.Sprintf("size=%d,mode=755", bytes))
}

// isMountPoint says whether the directory is on another file system than the one above it.
func isMountPoint(directory string) (bool, error) {
	var own, parent syscall.Stat_t
	if err := syscall.Stat(directory, &own); err != nil {
		return false, err
	}
	if err := syscall.Stat(filepath.Dir(directory), &parent); err != nil {
		return false, err
	}
	return own.Dev != parent.Dev, nil
}

// Delete removes the directory of a volume whose reclaim policy says so.
func (p *provisioner) Delete(_ context.Context, volume *corev1.PersistentVolume) error {
	if volume.Spec.Local == nil {
		return fmt.Errorf("volume %s is not a local volume", volume.Name)
	}
	directory := volume.Spec.Local.Path
	// The path comes from an object that anyone with the right to write volumes could have changed.
	if !p.owns(directory, volume.Name) {
		return fmt.Errorf("volume %s: %s is not a directory of this provisioner", volume.Name, directory)
	}
	mounted, err := isMountPoint(directory)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil && mounted {
		err = syscall.Unmount(directory, 0)
	}
	if err != nil {
		return fmt.Errorf("unmount %s: %w", directory, err)
	}
	return os.RemoveAll(directory)
}

// owns says whether directory follows the --volumes pattern for some node.
func (p *provisioner) owns(directory, volume string) bool {
	before, after, found := strings.Cut(filepath.Join(p.volumes, volume), nodePlaceholder)
	if !found {
		return directory == filepath.Join(p.volumes, volume)
	}
	node := strings.TrimSuffix(strings.TrimPrefix(directory, before), after)
	return directory == before+node+after && node != "" && !strings.Contains(node, "/")
}

func newProvisionerCommand() *cobra.Command {
	var kubeconfig, volumes string
	command := &cobra.Command{
		Use:   "provisioner",
		Short: "Make local PersistentVolumes for claims of the class " + provisionerName,
		RunE: func(command *cobra.Command, _ []string) error {
			config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
			if err != nil {
				return err
			}
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				return err
			}
			controller.NewProvisionController(
				command.Context(),
				client,
				provisionerName,
				&provisioner{volumes: volumes},
				// One process per cluster: nobody to compete with.
				controller.LeaderElection(false),
			).Run(command.Context())
			return nil
		},
	}
	command.Flags().StringVar(&kubeconfig, "kubeconfig", "", "how to reach the API server")
	command.Flags().StringVar(&volumes, "volumes", "", "where a node's volumes are, with "+nodePlaceholder+" for the node's name")
	return command
}
