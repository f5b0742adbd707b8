{{- /* Gives the value of the flag .flag among the arguments .args, as the binaries read them: one or two dashes, "_" for
"-", and the last one counts. A flag without "=" is a boolean flag, because the schema accepts no word without a dash. */ -}}
{{- define "flag" -}}
{{- $value := "" -}}
{{- range .args -}}
{{- $parts := regexSplit "=" . 2 -}}
{{- if eq $.flag (first $parts | trimPrefix "-" | trimPrefix "-" | replace "_" "-") -}}
{{- $value = "true" -}}
{{- if eq (len $parts) 2 }}{{ $value = last $parts }}{{ end -}}
{{- end -}}
{{- end -}}
{{- $value -}}
{{- end -}}

{{- /* The flags of kubedns that have no effect, or keep it from becoming ready, unless it may list and watch .resource:
docs/coredns.md#permissions. They need it if their value matches .value. */ -}}
{{- define "flags.with.permissions" -}}
- {flag: clusterset-domain, value: ".+", group: multicluster.x-k8s.io, resource: serviceimports}
- {flag: clusterset-domain, value: ".+", group: discovery.k8s.io, resource: endpointslices}
- {flag: config-map, value: ".+", group: "", resource: configmaps}
- {flag: endpoints-source, value: endpointslices, group: discovery.k8s.io, resource: endpointslices}
- {flag: namespace-selector, value: ".+", group: "", resource: namespaces}
- {flag: pods, value: "verified|node", group: "", resource: pods}
- {flag: prefer-zone, value: "auto|hints", group: "", resource: nodes}
- {flag: prefer-zone, value: ".+", group: discovery.k8s.io, resource: endpointslices}
- {flag: zonal-names, value: "1|t|T|true|TRUE|True", group: discovery.k8s.io, resource: endpointslices}
{{- end -}}

{{- /* Gives "yes" if .rules let kubedns list and watch .resource of .group, and nothing otherwise. A rule for single
objects is enough if it names .name. */ -}}
{{- define "may.watch" -}}
{{- $verbs := list -}}
{{- range .rules -}}
{{- $kind := and (or (has $.group .apiGroups) (has "*" .apiGroups)) (or (has $.resource .resources) (has "*" .resources)) -}}
{{- if and $kind (or (not .resourceNames) (has $.name .resourceNames)) }}{{ $verbs = concat $verbs .verbs }}{{ end -}}
{{- end -}}
{{- if or (has "*" $verbs) (and (has "list" $verbs) (has "watch" $verbs)) }}yes{{ end -}}
{{- end -}}
