/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program that names libuct's list of components, so that it has the variable itself
 * (copy relocation): what stands in libuct under that name is not the list.
 */
#include <uct/api/uct.h>

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

extern struct links {
    struct links *next, *prev;
} uct_components_list;

int main(void)
{
    uct_component_attr_t attr = {.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME};
    uct_component_h      *components;
    unsigned             n, i, found = 0;
    const struct links   *link;
    int                  round;
    void                 *libuct = dlopen("libuct.so.0", RTLD_LAZY | RTLD_NOLOAD);

    if (dlsym(libuct, "uct_components_list") == (void *)&uct_components_list) {
        printf("the program does not have the variable\n");
        return 1;
    }
    for (round = 0; round < 2; ++round) {
        if (uct_query_components(&components, &n) != UCS_OK) {
            return 1;
        }
        for (i = 0; i < n; ++i) {
            if (uct_component_query(components[i], &attr) != UCS_OK) {
                return 1;
            }
            found += !strcmp(attr.name, "utofu");
        }
        uct_release_component_list(components);
    }
    for (i = 0, link = uct_components_list.next; link != &uct_components_list;
         link = link->next) {
        ++i;
    }
    if ((found != 2) || (i != n)) {
        printf("found %u times, list of %u, %u components\n", found, i, n);
        return 1;
    }
    printf("ok\n");
    return 0;
}
