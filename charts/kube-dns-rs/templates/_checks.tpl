{{- /* Fails if a value has no effect on the objects of the shape, .objects. */ -}}
{{- define "checks" -}}
{{- $values := .root.Values -}}
{{- $shape := $values.shape -}}
{{- $names := list -}}
{{- $containers := list -}}
{{- $volumes := list -}}
{{- range .objects -}}
{{- $names = append $names (printf "%s/%s" .kind .metadata.name) -}}
{{- if include "is.kube-dns" . -}}
{{- range .spec.template.spec.containers }}{{ $containers = append $containers .name }}{{ end -}}
{{- range .spec.template.spec.volumes }}{{ $volumes = append $volumes .name }}{{ end -}}
{{- end -}}
{{- end -}}

{{- if and $values.configMap.create (not (has "ConfigMap/kube-dns" $names)) -}}
{{- fail (printf "configMap.create: the shape %s has no ConfigMap, because it uses the ConfigMap of the cluster" $shape) -}}
{{- end -}}
{{- if and $values.configMap.data (not $values.configMap.create) -}}
{{- fail "configMap.data has no effect without configMap.create: the ConfigMap stays as it is in the cluster" -}}
{{- end -}}

{{- with $values.secondaryClusterIP -}}
{{- if or (not (has "Service/kube-dns" $names)) (has "DaemonSet/node-local-dns" $names) -}}
{{- fail (printf "secondaryClusterIP: the Service of the shape %s cannot have two addresses" $shape) -}}
{{- end -}}
{{- if eq (contains ":" .) (contains ":" $values.clusterIP) -}}
{{- fail (printf "secondaryClusterIP: %s and clusterIP %s are of the same IP family" . $values.clusterIP) -}}
{{- end -}}
{{- end -}}

{{- if not (kindIs "invalid" $values.replicas) -}}
{{- if has "DaemonSet/kube-dns" $names -}}
{{- fail (printf "replicas: the shape %s has a pod on each node" $shape) -}}
{{- end -}}
{{- if has "Deployment/kube-dns-autoscaler" $names -}}
{{- fail (printf "replicas: the autoscaler of the shape %s sets the number; edit its ConfigMap kube-dns-autoscaler" $shape) -}}
{{- end -}}
{{- end -}}

{{- if and (ne $values.clusterIP "10.96.0.10") (not (has "Service/kube-dns" $names)) -}}
{{- fail (printf "clusterIP: the shape %s has no Service, so this value has no effect" $shape) -}}
{{- end -}}

{{- if and (contains ":" $values.clusterIP) (has "DaemonSet/node-local-dns" $names) -}}
{{- fail "clusterIP: the cache of the shape nodelocal needs an IPv4 address" -}}
{{- end -}}

{{- if and (has "--pods=verified" $values.kubedns.args) (not $values.rbac.pods) (not (has "ClusterRole/kube-dns-node" $names)) -}}
{{- fail "kubedns.args: --pods=verified needs rbac.pods=true, or kubedns is never ready" -}}
{{- end -}}

{{- if not (has "DaemonSet/node-local-dns" $names) -}}
{{- range $key, $value := $values.nodeLocal -}}
{{- if $value -}}{{- fail (printf "nodeLocal.%s: the shape %s has no cache on the nodes, only nodelocal has" $key $shape) -}}{{- end -}}
{{- end -}}
{{- end -}}

{{- if and $values.networkPolicy.metricsFrom (not $values.networkPolicy.create) -}}
{{- fail "networkPolicy.metricsFrom has no effect without networkPolicy.create" -}}
{{- end -}}

{{- range $values.extraVolumes -}}
{{- if has .name $volumes -}}{{- fail (printf "extraVolumes: there is already a volume %s" .name) -}}{{- end -}}
{{- $volumes = append $volumes .name -}}
{{- end -}}
{{- range $container := list "kubedns" "dnsmasq" "sidecar" -}}
{{- range $key, $value := get $values $container -}}
{{- if and $value (not (has $container $containers)) -}}
{{- fail (printf "%s.%s: the shape %s has no container %s" $container $key $shape $container) -}}
{{- end -}}
{{- end -}}
{{- range (get $values $container).extraVolumeMounts -}}
{{- if not (has .name $volumes) -}}
{{- fail (printf "%s.extraVolumeMounts: there is no volume %s; add it to extraVolumes" $container .name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
