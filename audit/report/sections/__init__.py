"""The sections of the page, a module each: what stands in one, with its template in ``templates/sections``."""
