{{- /* Fails if a value has no effect on the objects of the shape, .objects. */ -}}
{{- define "checks" -}}
{{- $values := .root.Values -}}
{{- $shape := $values.shape -}}
{{- $names := list -}}
{{- $containers := list -}}
{{- $volumes := list -}}
{{- $tolerations := list -}}
{{- $rules := list -}}
{{- $kubedns := $values.kubedns.args -}}
{{- range .objects -}}
{{- $names = append $names (printf "%s/%s" .kind .metadata.name) -}}
{{- /* The roles of kubedns; system:kube-dns-autoscaler is for another ServiceAccount. */ -}}
{{- if and (eq .kind "ClusterRole") (hasPrefix "kube-dns-" .metadata.name) }}{{ $rules = concat $rules .rules }}{{ end -}}
{{- if include "is.kube-dns" . -}}
{{- $tolerations = .spec.template.spec.tolerations -}}
{{- range .spec.template.spec.containers -}}
{{- $containers = append $containers .name -}}
{{- if eq .name "kubedns" }}{{ $kubedns = concat .args $kubedns }}{{ end -}}
{{- end -}}
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

{{- $directory := include "flag" (dict "flag" "config-dir" "args" $kubedns) -}}
{{- with include "flag" (dict "flag" "config-map" "args" $kubedns) -}}
{{- if $directory -}}
{{- fail (printf "kubedns.args: --config-map=%s and --config-dir=%s of the shape %s exclude each other; add --config-dir= to use the ConfigMap, or leave --config-map out" . $directory $shape) -}}
{{- end -}}
{{- end -}}
{{- with include "flag" (dict "flag" "daemonset" "args" $kubedns) -}}
{{- if not (has "DaemonSet/kube-dns" $names) -}}
{{- fail (printf "kubedns.args: --daemonset=%s: the shape %s has no DaemonSet of kube-dns, only node has" . $shape) -}}
{{- end -}}
{{- end -}}
{{- /* With one of these flags, kubedns does not use its ServiceAccount, so the roles say nothing. */ -}}
{{- $elsewhere := or (include "flag" (dict "flag" "kubecfg-file" "args" $kubedns)) (include "flag" (dict "flag" "kube-master-url" "args" $kubedns)) -}}
{{- range include "flags.with.permissions" . | fromYamlArray -}}
{{- $value := include "flag" (dict "flag" .flag "args" $kubedns) -}}
{{- $needed := and (not $elsewhere) (regexMatch (printf "^(%s)$" .value) $value) -}}
{{- if and $needed (not (include "may.watch" (dict "rules" $rules "group" .group "resource" .resource "name" $value))) -}}
{{- $remedy := printf "a rule in rbac.extraRules: {apiGroups: [%q], resources: [%s], verbs: [list, watch]}" .group .resource -}}
{{- if eq .resource "pods" }}{{ $remedy = "rbac.pods=true" }}{{ end -}}
{{- fail (printf "kubedns.args: --%s=%s needs %s, because the shape %s does not let kubedns list and watch %s" .flag $value $remedy $shape .resource) -}}
{{- end -}}
{{- end -}}

{{- if and $values.rbac.pods (has "ClusterRole/kube-dns-node" $names) -}}
{{- fail (printf "rbac.pods: the shape %s lets kubedns watch pods anyway, so this value has no effect; leave it false" $shape) -}}
{{- end -}}
{{- if and $values.tolerations (has (dict "operator" "Exists") $tolerations) -}}
{{- fail (printf "tolerations: the pods of the shape %s tolerate every taint anyway, so this value has no effect; leave it empty" $shape) -}}
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
